"""Patterns of kernel names that the rules of several writers share: `name = "@collective"`.

They match complete names. For names with more text around them: `name = '(?:Tile: )?(?=@collective).*'`.
"""

from __future__ import annotations

# The library, or the function's own name, shows that a kernel exchanges data with other devices. Names in template
# arguments do not count, nor those of a Triton kernel, which lists the ops around it. A kernel that also computes, such
# as all-reduce with a normalization, is a collective: its duration depends on other devices.
COLLECTIVE = r"""(?x:
(?:void\ )? (?:
    (?: [nN]ccl | rccl | msccl | oneccl | [a-z]ccl(?:Dev)?Kernel_ | hccl:: | (?:oneapi::)? ccl::
       | (?:nv|roc|i)shmem | pplx:: | deep_ep::(?!layout) | hybrid_ep:: (?:dispatch|combine) | uccl:: ) .*
  | (?: (?: \w+ | \(anonymous\ namespace\) | <unnamed> | \{anonymous\} ) :: )*
    (?! triton_ | \w*(?:warp|block|Warp|Block)_?[aA]ll_?[rR]educe )
    \w*?
    (?: cross_device_reduce | moeA2A(?:Dispatch|Combine)Kernel | Ep(?:Dispatch|Combine)(?:Intra|Inter)Node
      | (?<![a-zA-Z]) (?: multimem_ | k?userbuffers_ | ncclDevKernel | ncclKernel )
      | (?:(?<![a-z])a|A)ll_?(?:[rR]educe|[gG]ather|[tT]o_?[aA]ll|2_?[aA]ll) | (?:(?<![a-z])r|R)educe_?[sS]catter ) .*
))"""

SHARED = {"@collective": COLLECTIVE}
