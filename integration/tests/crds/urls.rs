//! Cases of addresses, proxies, server names and issuers.

use super::case::Taken::{ByApi, ByFile, No, Yes};
use super::case::{Case, all, each, target};

const ODD_HOST: &str =
    "a host that no DNS has: the reader takes what the URL standard leaves as it is";

pub(super) fn cases() -> Vec<Case> {
    [address(), proxy(), server_name(), target_issuer()].concat()
}

fn address() -> Vec<Case> {
    let base = target();
    let good = [
        "https://prod.example.com",
        "https://prod.example.com/",
        "https://prod.example.com:6443",
        "https://prod.example.com:443",
        "https://prod.example.com:1",
        "https://prod.example.com:65535",
        "https://Prod.example.com:6443",
        "https://prod",
        "https://prod_1.example.com",
        "https://k8s-1",
        "https://1a",
        "https://a.1b:6443",
        "https://prod.example.com.",
        "https://10.0.0.1:6443",
        "https://255.255.255.255",
        "https://[fd00::1]:6443",
        "https://[FD00::1]:6443",
        "https://[::1]",
        "https://[fd00::]",
        "https://[1:2:3:4:5:6:7:8]",
        "https://[1:0:3:4:5:6:7:8]",
        "https://[1:2:3::7:8]",
        "https://xn--bcher-kva.example",
        "https://rancher.example.com/k8s/clusters/c-m-1_2~x",
        "https://rancher.example.com/k8s/clusters/c-m-1/",
        "https://prod.example.com/x//",
        "https://prod.example.com/.../.x",
        "https://prod.example.com/a:b;c=d,e+f(g)!$&'*|[]",
    ];
    let bad = [
        "",
        "prod.example.com",
        "http://prod.example.com",
        "HTTPS://prod.example.com",
        "https:prod.example.com",
        "https:/prod.example.com",
        "https:///prod.example.com",
        "https://",
        "https:///",
        "https://:6443",
        "https://user@prod.example.com",
        "https://user:password@prod.example.com",
        "https://@prod.example.com",
        "https://prod.example.com/@x",
        "https://prod.example.com?x",
        "https://prod.example.com/?",
        "https://prod.example.com#x",
        "https://prod.example.com/#",
        "https://prod.example.com:0",
        "https://prod.example.com:",
        "https://prod.example.com:06443",
        "https://prod.example.com:65536",
        "https://prod.example.com:99999",
        "https://prod.example.com:+443",
        "https://pr\u{f6}d.example.com",
        "https://prod.example.com\u{3002}evil.example",
        "https://\u{ff50}rod.example.com",
        "https://prod.example.com/\u{e9}",
        "https://prod.example.com\\evil",
        "https://prod.example.com/a\\b",
        "https://prod.example.com/a%2Fb",
        "https://prod%2eexample.com",
        "https://prod.example.com/../x",
        "https://prod.example.com/x/..",
        "https://prod.example.com/./x",
        "https://prod.example.com/x/.",
        "https://prod.example.com//",
        "https://prod.example.com//x",
        "https://prod.example.com/x//y",
        "https://prod.example.com/a b",
        "https://prod.example.com/a\tb",
        "https://prod.exa\nmple.com",
        "https://prod.example.com\n",
        " https://prod.example.com",
        "https://prod.example.com ",
        "https://prod.example.com/a\"b",
        "https://prod.example.com/<x>",
        "https://prod.example.com/{x}",
        "https://prod.example.com/`x",
        "https://0x7f.1",
        "https://0x7f",
        "https://2130706433",
        "https://127.1",
        "https://1.2.3.4.",
        "https://01.2.3.4",
        "https://256.2.3.4",
        "https://1.2.3.4.5",
        "https://a.1",
        "https://a.0x1:6443",
        "https://[0:0:0:0:0:0:0:1]",
        "https://[fd00:0:0:0:0:0:0:1]",
        "https://[fd00::0]",
        "https://[fd00::0:1]",
        "https://[0::1]",
        "https://[00fd::1]",
        "https://[1:2:3:4:5:6:7]",
        "https://[1:2:3:4:5:6:7:8:9]",
        "https://[1:2:3:4:5:6:7::]",
        "https://[1::2::3]",
        "https://[:1]",
        "https://[12345::]",
        "https://[g::]",
        "https://[]",
        "https://[::1",
        "https://::1",
        "https://[fe80::1%25eth0]",
        "https://[::ffff:10.0.0.1]",
        "https://[::1]x",
    ];
    let punycode = ByApi(
        "spec.address",
        "whether a label decodes as Punycode is nothing that a pattern can say",
    );
    let odd = ByFile("spec.address", ODD_HOST);
    let long = format!("https://prod.example.com/{}", "x".repeat(2024));
    let mut cases = each(&base, "address", all(Yes, good));
    cases.extend(each(&base, "address", all(No("spec.address"), bad)));
    cases.extend(each(&base, "address", all(punycode, ["https://xn--a"])));
    cases.extend(each(
        &base,
        "address",
        all(odd, ["https://a!b", "https://-a", "https://a..b"]),
    ));
    cases.extend(each(
        &base,
        "address",
        all(
            ByFile("spec.address", "the cost of the API's rules needs a bound"),
            [long],
        ),
    ));
    cases
}

fn proxy() -> Vec<Case> {
    let base = target();
    let good = [
        "http://proxy.example.com:3128",
        "http://proxy.example.com/",
        "https://proxy.example.com",
        "socks5://10.0.0.9:1080",
        "socks5://[fd00::9]:1080",
    ];
    let bad = [
        "",
        "socks4://proxy.example.com",
        "socks5h://proxy.example.com",
        "ftp://proxy.example.com",
        "proxy.example.com:3128",
        "http:proxy.example.com",
        "http://user:password@proxy.example.com",
        "socks5://user@proxy.example.com:1080",
        "http://proxy.example.com/x",
        "http://proxy.example.com//",
        "http://proxy.example.com?x",
        "socks5://proxy.example.com#x",
        "http://proxy.example.com:0",
        "socks5://proxy.example.com:0",
        "socks5://",
        "socks5://pro%78y.example.com",
        "socks5://pr\u{f6}xy.example.com",
        "http://127.1:3128",
        "http://[fd00:0:0:0:0:0:0:1]:3128",
        "socks5://127.1:1080",
        "socks5://[0:0:0:0:0:0:0:1]:1080",
        "SOCKS5://10.0.0.9:1080",
    ];
    let mut cases = each(&base, "proxyURL", all(Yes, good));
    cases.extend(each(&base, "proxyURL", all(No("spec.proxyURL"), bad)));
    cases
}

fn server_name() -> Vec<Case> {
    let base = target();
    let mut cases = each(
        &base,
        "tlsServerName",
        all(Yes, ["kubernetes.default.svc", "10.0.0.1.example.com", "a"]),
    );
    let bad = [
        "",
        "*.example.com",
        "a b",
        "a/b",
        "a:443",
        "A.example",
        "a..b",
        "a.-b",
        "-a",
        "a.",
        ".a",
        "a_b",
        "a\n",
        "10.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "a.0x",
        "a.1",
    ];
    cases.extend(each(
        &base,
        "tlsServerName",
        all(No("spec.tlsServerName"), bad),
    ));
    cases.extend(each(
        &base,
        "tlsServerName",
        all(No("spec.tlsServerName"), ["a".repeat(254)]),
    ));
    cases
}

fn target_issuer() -> Vec<Case> {
    let base = target();
    let good = [
        "https://kubernetes.default.svc.cluster.local",
        "https://prod.example.com:6443/a/b?",
    ]
    .map(|text| text.trim_end_matches('?'));
    let bad = [
        "",
        "kubernetes/serviceaccount",
        "http://prod.example.com",
        "https://prod.example.com?a=b",
        "https://prod.example.com/a#b",
        "https://user@prod.example.com",
        "https://prod.example.com/a b",
        "https://prod.example.com:65536",
        "https://",
    ];
    let mut cases = each(&base, "targetIssuer", all(Yes, good));
    cases.extend(each(
        &base,
        "targetIssuer",
        all(No("spec.targetIssuer"), bad),
    ));
    let sized = |size: usize| format!("https://prod.example.com/{}", "x".repeat(size - 25));
    cases.extend(each(&base, "targetIssuer", all(Yes, [sized(600)])));
    cases.extend(each(
        &base,
        "targetIssuer",
        all(No("spec.targetIssuer"), [sized(601)]),
    ));
    cases
}
