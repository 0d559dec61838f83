"""Who may send when, over a link to the root that all workers share.

`slots` is what every policy is; `fair` is the drift-plus-penalty rule of the two-stage
paper, `rivals` are the policies it is compared with, `batteries` workers that send on
harvested energy, `bounds` what is possible at best. `credits` grants whole messages by
a policy that counts bits, and `link` is what drivers are told.
"""

from codedgrad.uplink.credits import Credits
from codedgrad.uplink.link import Link

__all__ = ["Credits", "Link"]
