"""Spellings of hosts, each with what it must mean: an address, a name, or nothing. Made for these tests."""

# ruff: noqa: E501, RUF001

from __future__ import annotations

LOOPBACK_4 = """
127.0.0.1 127.1 127.0.1 127.00.0.1 127.0.0.1. 127.0.0.01 0177.0.0.1 0177.1 0177.0.1 0177.00.00.01 0x7f.0.0.1 0x7F.0.0.1 0X7f.1
0x7f.0x0.0x0.0x1 0x7f.0.0x1 0x7f000001 0X7F000001 0x07f000001 2130706433 017700000001 0017700000001 00000000177.1
127.0x1 127.0x0.01 0x7f.01 127.000000000000000001 0x000000000000000007f.1 127.0.0x0.1 0x7f.0.1 0177.0x0.0.1 127.0.000.0x1
１２７.０.０.１ 127。0。0。1 127．1 ①②⑦.0.0.1 𝟏𝟐𝟕.𝟎.𝟎.𝟏 ⑫7.1 0ｘ7f.1 ０x7f000001 ₁₂₇.₀.₀.₁ ¹²⁷.⁰.⁰.¹ 127.0.0.1｡ 𝟘𝕩7𝕗.1
::ffff:127.0.0.1 ::FFFF:127.0.0.1 ::ffff:7f00:1 ::ffff:7F00:0001 0:0:0:0:0:ffff:127.0.0.1 0:0:0:0:0:FFFF:7f00:1
[::ffff:127.0.0.1] [::ffff:7f00:1] [0000:0000:0000:0000:0000:ffff:7f00:0001] ::ffff:127.0.0.1%lo [::ffff:7f00:1%25lo]
"""

OTHER_4 = """
127.0.0.2=127.0.0.2 127.2=127.0.0.2 127.255.255.254=127.255.255.254 127.16777214=127.255.255.254 0x7ffffffe=127.255.255.254
0=0.0.0.0 00=0.0.0.0 0.0=0.0.0.0 0.0.0.0=0.0.0.0 0x0=0.0.0.0 0x00000000=0.0.0.0 000.000.000.000=0.0.0.0 0.=0.0.0.0 ０=0.0.0.0
::ffff:0.0.0.0=0.0.0.0 [::ffff:0:0]=0.0.0.0 0x0.0x0=0.0.0.0 00000000000=0.0.0.0
169.254.169.254=169.254.169.254 2852039166=169.254.169.254 0xa9fea9fe=169.254.169.254 0xA9.0xFE.0xA9.0xFE=169.254.169.254
0251.0376.0251.0376=169.254.169.254 025177524776=169.254.169.254 169.254.43518=169.254.169.254 169.16689662=169.254.169.254
169.254.0xa9fe=169.254.169.254 0xa9.254.0251.254=169.254.169.254 169.254.169.254.=169.254.169.254
[::ffff:a9fe:a9fe]=169.254.169.254 ::ffff:169.254.169.254=169.254.169.254 １６９.２５４.１６９.２５４=169.254.169.254
169。254。169。254=169.254.169.254 ⑯9.254.169.254=169.254.169.254
10.0.0.1=10.0.0.1 10.1=10.0.0.1 012.1=10.0.0.1 0xa.1=10.0.0.1 167772161=10.0.0.1 0x0a000001=10.0.0.1 10.0.1=10.0.0.1
012.0.0.01=10.0.0.1 0127.0.0.01=87.0.0.1 ::ffff:a00:1=10.0.0.1 10.256=10.0.1.0 10.0.65535=10.0.255.255 10.16777215=10.255.255.255
192.168.1.1=192.168.1.1 192.168.257=192.168.1.1 3232235777=192.168.1.1 0xc0a80101=192.168.1.1 0300.0250.1.1=192.168.1.1
172.16.0.1=172.16.0.1 172.1048577=172.16.0.1 0xac.0x10.1=172.16.0.1 2886729729=172.16.0.1
100.64.0.1=100.64.0.1 1681915905=100.64.0.1 224.0.0.1=224.0.0.1 239.255.255.250=239.255.255.250
255.255.255.255=255.255.255.255 4294967295=255.255.255.255 0xffffffff=255.255.255.255 037777777777=255.255.255.255
255.16777215=255.255.255.255 1.2.3.4=1.2.3.4 1.2.772=1.2.3.4 1.131844=1.2.3.4 16909060=1.2.3.4 0x01020304=1.2.3.4
01.02.03.04=1.2.3.4 1.2.3.4.=1.2.3.4 0100401404=1.2.3.4 1=0.0.0.1 1.=0.0.0.1 １=0.0.0.1 256=0.0.1.0 65536=0.1.0.0
8.8.8.8=8.8.8.8 010.010.010.010=8.8.8.8 134744072=8.8.8.8 0x8080808=8.8.8.8 168.63.129.16=168.63.129.16
203.0.113.9=203.0.113.9 3405803785=203.0.113.9 0313.0.0161.011=203.0.113.9 0xcb.0.0x71.9=203.0.113.9
"""

VERSION_6 = """
::1=::1 [::1]=::1 0:0:0:0:0:0:0:1=::1 0000:0000:0000:0000:0000:0000:0000:0001=::1 [0::1]=::1 ::0001=::1 ::0:1=::1 0::0:0:1=::1
::1%lo=::1 [::1%25lo]=::1 [::1%lo]=::1 ::1%1=::1 ::0.0.0.1=::1 [::0.0.0.1]=::1 0:0:0:0:0:0:0.0.0.1=::1
::=:: [::]=:: 0:0:0:0:0:0:0:0=:: 0::=:: ::0=:: ::0.0.0.0=:: [0:0::0:0]=::
fe80::1=fe80::1 FE80::1=fe80::1 fe80::1%eth0=fe80::1 [fe80::1%25eth0]=fe80::1 [FE80::0001%eth0]=fe80::1 fe80::1%2=fe80::1
fe80:0:0:0:0:0:0:1=fe80::1 fe80::5efe:7f00:1=fe80::5efe:7f00:1 fe80::200:5efe:10.0.0.1=fe80::200:5efe:a00:1
2001:db8::5efe:127.0.0.1=2001:db8::5efe:7f00:1 2001:DB8::1=2001:db8::1 2001:0db8:0000:0000:0000:0000:0000:0001=2001:db8::1
[2001:db8::1]=2001:db8::1 2001:db8:0:0:1:0:0:1=2001:db8::1:0:0:1 2001:db8::1.2.3.4=2001:db8::102:304
64:ff9b::127.0.0.1=64:ff9b::7f00:1 64:ff9b::7f00:1=64:ff9b::7f00:1 [64:FF9B::169.254.169.254]=64:ff9b::a9fe:a9fe
64:ff9b:1::10.0.0.1=64:ff9b:1::a00:1 0064:ff9b::0a00:0001=64:ff9b::a00:1
2002:7f00:1::=2002:7f00:1:: 2002:7f00:0001::1=2002:7f00:1::1 2002:a9fe:a9fe::=2002:a9fe:a9fe:: [2002:c0a8:101::1]=2002:c0a8:101::1
2001:0:7f00:1::1=2001:0:7f00:1::1 ::127.0.0.1=::7f00:1 ::7f00:1=::7f00:1 ::10.0.0.1=::a00:1 [::a9fe:a9fe]=::a9fe:a9fe
::ffff:0:127.0.0.1=::ffff:0:7f00:1 ::ffff:0:a9fe:a9fe=::ffff:0:a9fe:a9fe
fd00:ec2::254=fd00:ec2::254 FD00:0EC2::0254=fd00:ec2::254 fc00::1=fc00::1 fec0::1=fec0::1 ff02::1=ff02::1 ff02::1%eth0=ff02::1
"""

NAMES = """
example.com=example.com EXAMPLE.COM=example.com Example.Com=example.com example.com.=example.com eXaMpLe.CoM.=example.com
ｅｘａｍｐｌｅ.com=example.com ＥＸＡＭＰＬＥ.ＣＯＭ=example.com example。com=example.com example．com=example.com example｡com｡=example.com
𝓮𝔁𝓪𝓶𝓹𝓵𝓮.com=example.com ⓔⓧⓐⓜⓟⓛⓔ.com=example.com 𝐞𝐱𝐚𝐦𝐩𝐥𝐞.𝐜𝐨𝐦=example.com ℯxample.com=example.com ᵉxample.com=example.com
eⅹample.com=example.com exampLe.com=example.com examp\u2113e.com=example.com exa\u00admple.com=example.com
exa\u200bmple.com=example.com exam\u2060ple.com=example.com ex\ufe0fample.com=example.com \ufeffexample.com=example.com
exa\u034fmple.com=example.com eﬀect.example=effect.example ﬃ.example=ffi.example ǆ.example=xn--d-toa.example K.example=k.example
Å.example=xn--5ca.example A\u030a.example=xn--5ca.example å.example=xn--5ca.example
exämple.com=xn--exmple-cua.com EXÄMPLE.com=xn--exmple-cua.com exa\u0308mple.com=xn--exmple-cua.com xn--exmple-cua.com=xn--exmple-cua.com
XN--EXMPLE-CUA.com=xn--exmple-cua.com Xn--Exmple-Cua.COM.=xn--exmple-cua.com ｘn--exmple-cua.com=xn--exmple-cua.com
faß.example=xn--fa-hia.example fass.example=fass.example ς.example=xn--3xa.example Σ.example=xn--4xa.example
βόλος.example=xn--nxasmm1c.example ΒΌΛΟΣ.example=xn--nxasmq6b.example
пример.example=xn--e1afmkfd.example ПРИМЕР.example=xn--e1afmkfd.example еxample.com=xn--xample-2of.com exаmple.com=xn--exmple-4nf.com
例え.example=xn--r8jz45g.example 日本。example=xn--wgv71a.example مثال.example=xn--mgbh0fb.example नमस्ते.example=xn--h2bhs4b8d8a.example
127.0.0.1.example.com=127.0.0.1.example.com 1.2.3.4.com=1.2.3.4.com 0x7f.0.0.1.net=0x7f.0.0.1.net 127-0-0-1.example.com=127-0-0-1.example.com
1e3=1e3 0xg=0xg a.0xyz=a.0xyz 1.2.3.4a=1.2.3.4a 127.0.0.1a=127.0.0.1a 0b1=0b1 0o177.x=0o177.x 1_000=1_000 02130706433x=02130706433x ff=ff
127.0.0.l=127.0.0.l I27.0.0.x=i27.0.0.x a.b.c.d.e.f.g=a.b.c.d.e.f.g a=a x--y.example=x--y.example
xn--e1afmkfd.xn--e1afmkfd=xn--e1afmkfd.xn--e1afmkfd _dmarc.example.com=_dmarc.example.com a_b.example.com=a_b.example.com
localhost=localhost LOCALHOST=localhost localhost.=localhost ⓛocalhost=localhost ｌocalhost。=localhost local\u00adhost=localhost
localhost.localdomain=localhost.localdomain metadata.google.internal=metadata.google.internal 3com.example=3com.example
r4---sn-example.example.net=r4---sn-example.example.net
"""

REFUSED = [
    "", ".", "..", "...", ".example.com", "example..com", "example.com..", "。", "a。。b", "a.\u00ad.b", "\u00ad", "\u200b.example",
    "a b", " example.com", "example.com ", "\texample.com", "exa\tmple.com", "example.com\n", "example.com\r\n", "exa\rmple.com",
    "a\0b", "denied.test\0.allowed.test", "\0", "example.com\0", "allowed.test\0", "a\x01b", "a\x7fb", "a\x80b", "a\x85b",
    "a\u2028b", "a\u3000b", "a\u00a0b", "a\ufffdb", "a\ud800b", "a\ufffeb", "a\U000e0001b", "a\u202eb", "a\u200eb", "a\u200db",
    "a\u200cb", "\u0301a.example", "☃.example", "💩.example", "a／b", "a⁄b\\", "℀.example", "a＠b", "a？b", "a＃b", "a：b", "a％41b",
    "allowed.test@denied.test", "user:pw@example.com", "denied.test#@allowed.test", "denied.test\\@allowed.test", "a@b@c",
    "allowed.test%2f@denied.test", "allowed.test:80@denied.test", "http://example.com", "//example.com", "example.com/", "a/b",
    "example.com?x", "example.com#x", "example.com\\x", "\\\\example.com", "a%2eb", "%31%32%37.1", "a%00b", "a%", "%", "a%zzb",
    "a!b", "a$b", "a&b", "a'b", 'a"b', "a(b", "a)b", "a*b", "*.example.com", "*", "a+b", "a,b", "a;b", "a=b", "a<b", "a>b", "a^b",
    "a`b", "a{b", "a|b", "a}b", "a~b", "a]b", "a[b", "[a", "a]", "[]", "[", "]", "[[::1]]", "[::1", "::1]", "[::1]x", "x[::1]",
    "[127.0.0.1]", "[example.com]", "[::1]:80", "example.com:80", "127.0.0.1:80", "a:", ":", ":::", "::1::", "1::2::3", "12345::",
    "::fffff", "::g", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1.2.3", "::1.2.3.4.5", "::256.0.0.1", "::ffff:127.1", "::01.2.3.4",
    "::ffff:0x7f.0.0.1", "fe80::1%", "fe80::1% eth0", "fe80::1%a/b", "[fe80::1%25]%", "[v1.x]", "::1/128", "::ffff:127.0.0.1.",
    "256.0.0.1", "1.256.0.1", "1.2.3.256", "1.2.65536", "1.16777216", "4294967296", "99999999999", "0x100000000", "040000000000",
    "1.2.3.4.5", "1.2.3.4.5.", "0.0.0.0.0", "1.2.3.08", "08", "09.1", "0x", "0X", "1.0x", "0x.1", "0xg.1", "1..2", "1.2..", "127..1",
    "a.1", "example.com.1", "example.127", "foo.0x1", "foo.09", "foo.0", "a.b.c.2130706433", "-1", "+1", "+127.0.0.1", "1.-2.3.4",
    "127.0.0.1 example", "127.0.0.1\n", "127.0.0.1\0", "0x7f.0.0.1 ", "1,2,3,4", "１.２.３.４.５", "0x1.2.3.4.0x5", "١٢٧.٠.٠.1",
    "-example.com", "example-.com", "-.example", "a.-.b", "--", "-oProxyCommand=x", "xn--", "xn--.com", "xn--a.com", "xn--a-.com",
    "xn--\u00e4.com", "xn--zzzzzzzzz99999.com", "xn--exmple-cua-.com", "xn---bbk.com", "xn--n3h.example", "xn--ls8h.example",
    "xn--example.com-.x", "١٢٧.example", "x.١", "⒑1", "x-", "0X.", "FAẞ.example",
    "XN--A.com", "a" * 64, "a" * 64 + ".example", ".".join(["a" * 63] * 4), "a." * 127 + "bc", "ä" * 60,
    "a" * 1025, "1" * 1025, "." * 300, "[" + "0:" * 600 + "]", "a\u0300\u0301" * 200, "0x" + "0" * 1100,
]  # fmt: skip


def _pairs(text: str) -> dict[str, str]:
    words = (word.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in word else word for word in text.split())
    return dict(word.rsplit("=", 1) for word in words)


ADDRESSES: dict[str, str] = dict.fromkeys(LOOPBACK_4.split(), "127.0.0.1") | _pairs(OTHER_4) | _pairs(VERSION_6)
NAMED: dict[str, str] = _pairs(NAMES)
