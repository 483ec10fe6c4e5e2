"""The paper's tables, computed anew, each number beside the published one."""
