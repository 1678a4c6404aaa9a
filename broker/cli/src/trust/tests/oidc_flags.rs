//! `--from-oidc-flags`, in the forms in which people have them.

use super::*;

const ENTRY: &str = "url: \"https://idp.example.com\"";

#[test]
fn every_form_of_the_flags_gives_the_same_entry() {
    let plain = "--oidc-issuer-url=https://idp.example.com --oidc-client-id=k8s \
        --oidc-groups-claim=groups --oidc-groups-prefix=corp: --oidc-required-claim=hd=example.com";
    let wanted = printed(&["trust", "--from-oidc-flags", plain])
        .unwrap()
        .text;
    assert!(wanted.contains(ENTRY) && wanted.contains("example.com\""));
    let flags = plain.replace("--", "");
    let lines: Vec<&str> = flags.split(' ').collect();
    let each =
        |form: &dyn Fn(&str) -> String| lines.iter().map(|line| form(line)).collect::<String>();
    let pair = |line: &str| {
        line.split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .unwrap()
    };
    for (what, text) in [
        ("without dashes", flags.clone()),
        ("lines", each(&|line| format!("{line}\n"))),
        (
            "k3s",
            format!(
                "kube-apiserver-arg:\n{}",
                each(&|line| format!("  - {line}\n"))
            ),
        ),
        (
            "k3s, quoted",
            format!(
                "kube-apiserver-arg+:\n{}",
                each(&|line| format!("- \"{line}\" # x\n"))
            ),
        ),
        (
            "k3s, in one list",
            format!(
                "kube-apiserver-arg: [{}]",
                each(&|line| format!("\"{line}\", ")).trim_end_matches(", ")
            ),
        ),
        (
            "k3s, flags",
            each(&|line| format!("--kube-apiserver-arg={line} ")),
        ),
        (
            "k3s, flags with quotes",
            each(&|line| format!("--kube-apiserver-arg \"{line}\" ")),
        ),
        (
            "a manifest",
            format!(
                "    - kube-apiserver\n    - --advertise-address=10.0.0.1\n{}    - --tls-min-version=VersionTLS12\n",
                each(&|line| format!("    - --{line}\n"))
            ),
        ),
        (
            "a manifest on one line",
            each(&|line| format!("- --{line} ")),
        ),
        (
            "kubeadm's map",
            format!(
                "extraArgs:\n{}",
                each(&|line| {
                    let (name, value) = pair(line);
                    format!("  {name}: \"{value}\"\n")
                })
            ),
        ),
        (
            "kubeadm's list",
            format!(
                "extraArgs:\n{}",
                each(&|line| {
                    let (name, value) = pair(line);
                    format!("  - name: {name}\n    value: {value}\n")
                })
            ),
        ),
        (
            "a unit of systemd",
            format!(
                "ExecStart=/usr/bin/kube-apiserver \\\n{}",
                each(&|line| format!("  --{line} \\\n"))
            ),
        ),
        (
            "flags with blanks",
            each(&|line| {
                let (name, value) = pair(line);
                format!("--{name} '{value}' ")
            }),
        ),
    ] {
        let printed = printed(&["trust", "--from-oidc-flags", &text]);
        let printed = printed.unwrap_or_else(|problem| panic!("{what}: {problem}\n{text}"));
        assert_eq!(printed.text, wanted, "{what}\n{text}");
        let left_out = printed.notes.iter().any(|note| note.contains("left out"));
        assert_eq!(
            left_out,
            what == "a manifest",
            "{what}: {:?}",
            printed.notes
        );
    }
}

#[test]
fn a_misspelt_flag_is_still_refused() {
    for (text, needle) in [
        (
            "oidc-issuer-url=https://idp oidc-client-idd=k8s",
            "oidc-client-idd",
        ),
        (
            "--oidc-issuer-url --oidc-client-id=k8s",
            "oidc-issuer-url has no value",
        ),
        ("--oidc-client-id", "has no value"),
        (
            "--advertise-address=10.0.0.1",
            "--oidc-issuer-url and --oidc-client-id",
        ),
        ("- --oidc-issuer-url=https://idp", "needed"),
    ] {
        let problem = printed(&["trust", "--from-oidc-flags", text]).unwrap_err();
        assert!(problem.contains(needle), "{text}: {problem}");
    }
}
