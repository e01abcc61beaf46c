"""What is in a page, for tests that look at its data."""

import json
import re
from typing import Any


def parts(html: str) -> dict[str, Any]:
    found = re.findall(
        r'<script type="application/json" id="([^"]+)">(.*?)</script>',
        html,
        re.DOTALL,
    )
    return {name: json.loads(text) for name, text in found}
