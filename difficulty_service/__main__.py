"""`python -m difficulty_service`, for launchers that start modules."""

import sys

from difficulty_service.cli import main

if __name__ == "__main__":
    sys.exit(main())
