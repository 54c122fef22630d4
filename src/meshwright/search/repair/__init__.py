"""Repair: the smallest changes of a layout that make a wish true."""

from meshwright.search.repair.engine import repair
from meshwright.search.repair.wishes import Devices, Edit, Faster, Legal, Nearest, Repair, Repairs, Wish, WithinMemory

__all__ = ["Devices", "Edit", "Faster", "Legal", "Nearest", "Repair", "Repairs", "Wish", "WithinMemory", "repair"]
