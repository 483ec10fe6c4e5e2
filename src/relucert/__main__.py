"""`python -m relucert` is the command `relucert`."""

import sys

from relucert.cli.main import main

sys.exit(main())
