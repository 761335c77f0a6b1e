"""What tokens look like: prefixes that those who issue them document, so that others find them in what was written."""

from __future__ import annotations

import re

PREFIXED = (
    rb"gh[pousr]_[A-Za-z0-9]{30,}", rb"github_pat_\w{20,}", rb"gl(?:pat|ptt|rt|dt|soat|cbt|ft|imt|agent)-[\w.-]{20,}",
    rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", rb"xox[abeoprs]-[A-Za-z0-9-]{10,}", rb"xapp-[A-Za-z0-9-]{10,}",
    rb"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}", rb"whsec_[A-Za-z0-9+/=]{16,}", rb"sk-[A-Za-z0-9_-]{20,}",
    rb"AIza[\w-]{35}", rb"ya29\.[\w-]{20,}", rb"GOCSPX-[\w-]{20,}", rb"npm_[A-Za-z0-9]{36}", rb"pypi-[\w-]{16,}",
    rb"hf_[A-Za-z0-9]{30,}", rb"SG\.[\w-]{16,}\.[\w-]{16,}", rb"do[opr]_v1_[a-f0-9]{64}", rb"dckr_(?:pat|oat)_[\w-]{20,}",
    rb"hv[sbr]\.[\w-]{20,}", rb"dapi[a-f0-9]{32}", rb"AGE-SECRET-KEY-1[A-Z0-9]{50,}", rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    rb"PMAK-[a-f0-9]{24}-[a-f0-9]{34}", rb"lin_api_[A-Za-z0-9]{32,}", rb"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*",
)  # fmt: skip
"""GitHub, GitLab, AWS, Slack, Stripe, OpenAI and Anthropic, Google, npm, PyPI, Hugging Face, SendGrid, DigitalOcean, Docker, Vault,
Databricks, age, Shopify, Postman, Linear, and JSON web tokens (RFC 7519)."""

PRIVATE_KEY = rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)"
"""RFC 7468; a block whose end is not there is one to the end of the text."""
KEY_WITHOUT_BEGINNING = re.compile(rb"\A[A-Za-z0-9+/=\s:,-]*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")

# What comes before a credential, and is kept: a URL's user (RFC 3986), a header's scheme (RFC 9110), the option of a command line.
AFTER = (
    rb"(?P<url>://[^\s/:@'\"]*:)[^\s/@'\"]+(?=@)",
    rb"(?i:(?P<header>\b(?:bearer|basic|token)\s+))(?!\[hidden\])[A-Za-z0-9._~+/-]{12,}=*",
    rb"(?i:(?P<account>AccountKey=))[A-Za-z0-9+/=]{20,}",
    rb"(?i:(?P<option>--?[a-z-]*(?:password|passwd|token|secret|api-?key)=))[^\s'\"]+",
)

TOKENS = re.compile(
    b"|".join((*(rb"(?<![A-Za-z0-9])" + each for each in PREFIXED), rb"(?s:" + PRIVATE_KEY + rb")", *AFTER)), re.ASCII
)
BEGUN = re.compile(
    rb"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|gl[a-z]{2,5}-|AKIA|ASIA|ABIA|ACCA|xox[a-z]-|xapp-|[sr]k_(?:live|test)_|whsec_|sk-|AIza|"
    rb"ya29\.|GOCSPX-|npm_|pypi-|hf_|SG\.|do[opr]_v1_|dckr_[po]at_|hv[sbr]\.|dapi|AGE-SECRET-KEY-|shp[a-z]{2}_|PMAK-|lin_api_|eyJ)"
    rb"[\w./+=-]*\Z",
    re.ASCII,
)
"""A token that the end of the text cuts short."""

NAMES = re.compile(
    r"(?i)(?:^|_)(?:\w*(?:password|passwd|passphrase|secret|token|credential|apikey|api_key|access_key|private_key|signing_key|"
    r"encryption_key|session_key|webhook_url|connection_string|dsn)\w*|pass|pwd|key|auth|cookie|database_url|redis_url)(?:$|_)"
)
"""Names of variables that say that their value is a secret."""
NOT_SECRET = re.compile(r"(?i)_(?:file|path|dir|command|count|limit|name|id)$|^(?:XAUTHORITY|SSH_AUTH_SOCK|TOKENIZERS_\w+)$")

OPTIONS = re.compile(r"(?i)^--?[a-z-]*(?:password|passwd|token|secret|api-?key|passphrase)$")
"""An option of a command line whose value, the next word, is a secret."""
