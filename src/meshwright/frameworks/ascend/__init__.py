"""What MindSpeed-Core-MS, MindFormers and MindSpeed-LLM share: lists by stage, rules of arithmetic, launches on Ascend."""
