//! The commands, in the order in which a new user runs them.

use std::collections::BTreeSet;

use keyferry_integration::documents::shell_commands;
use keyferry_integration::runner::{TestError, TestResult};

use super::place::{Here, Shell};

/// One step: the command, its exit code, and what it must and must not print.
struct Step {
    text: &'static str,
    code: i32,
    says: &'static [&'static str],
}

const fn step(text: &'static str, says: &'static [&'static str]) -> Step {
    Step {
        text,
        code: 0,
        says,
    }
}

const fn fails(code: i32, text: &'static str, says: &'static [&'static str]) -> Step {
    Step { text, code, says }
}

/// The steps that need no cluster.
const OFFLINE: &[Step] = &[
    step("keyferry --version", &["keyferry "]),
    step("keyferry --help", &["keyferry"]),
    step("kubectl keyferry --version", &["keyferry "]),
    step("keyferry completion bash", &["keyferry"]),
    step("keyferry crds", &["kind: CustomResourceDefinition"]),
    step("keyferry explain TargetNotGranted", &["TargetNotGranted"]),
    step(
        "keyferry serve --check --config config.yaml",
        &["no mistakes"],
    ),
    step("keyferry admission-policies --help", &["--check"]),
    step(
        "keyferry tls init https://keyferry.example.com",
        &["kind: Secret", "kubernetes.io/tls"],
    ),
    step(
        "keyferry inputs credential new prod-eu --cluster prod-eu.fleet.example.com",
        &["sha256", "internal-api-token"],
    ),
    step(
        "keyferry proxy-role charts-0 -n charts --port 8080 --account tenant-a/reconciler",
        &[
            "pods/proxy",
            "charts-0:8080",
            "keyferry:tenant-a:reconciler",
        ],
    ),
];

/// The first steps of a platform admin and of a target's admin. The target's file is the one that
/// `trust` prints.
const ADMINS: &[Step] = &[
    step("keyferry targets $CONFIG", &["prod"]),
    step("keyferry keys $CONFIG", &["active"]),
    step(
        "keyferry trust prod $CONFIG --issuer https://hub.keyferry.test --certificate-authority \
         ca.crt > authentication.yaml",
        &[],
    ),
    step("keyferry lint authentication.yaml", &[]),
    step("keyferry lint --network authentication.yaml", &[]),
    step(
        "keyferry verify --auth-config authentication.yaml --service-account tenant-a/reconciler",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    fails(
        1,
        "keyferry verify --auth-config authentication.yaml --service-account tenant-b/reconciler",
        &[],
    ),
    step("keyferry export published $CONFIG --without-record", &[]),
];

/// The steps of a tenant's developer, with the user's own rights and through the server.
const TENANT: &[Step] = &[
    step("keyferry token tenant-a/prod $CONFIG > direct.token", &[]),
    step(
        "keyferry verify --auth-config authentication.yaml --target-token-file direct.token --live",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step("keyferry token tenant-a/prod $SERVER > prod.token", &[]),
    step(
        "keyferry kubeconfig tenant-a/prod $SERVER > prod.kubeconfig",
        &[],
    ),
    step(
        "kubectl --kubeconfig prod.kubeconfig auth whoami",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step(
        "keyferry exec tenant-a/prod $SERVER -- kubectl auth whoami",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step(
        "keyferry kubeconfig tenant-a/prod --exec $SERVER > exec.kubeconfig 2> told",
        &[],
    ),
    step(
        "mkdir -p .config/keyferry; grep -v ^note: told | sed -n '/^apiVersion/,/^tokenFile/p' \
         > .config/keyferry/client.yaml",
        &[],
    ),
    step(
        "kubectl --kubeconfig exec.kubeconfig auth whoami",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step("rm .config/keyferry/client.yaml", &[]),
    step(
        "keyferry agent tenant-a/prod --dir $PWD/tokens --once $SERVER",
        &[],
    ),
    step(
        "keyferry agent tenant-a/prod --dir $PWD/tokens --check",
        &[],
    ),
    step(
        "kubectl --kubeconfig tokens/kubeconfig auth whoami",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step(
        "keyferry import prod.kubeconfig --audience https://other.example.com",
        &["kind: TargetCluster"],
    ),
    step(
        "keyferry whoami access/prod -n tenant-a $CONFIG",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step(
        "keyferry can-i get pods --from access/prod -n tenant-a $CONFIG",
        &["yes"],
    ),
    fails(
        1,
        "keyferry can-i delete nodes --from access/prod -n tenant-a $CONFIG",
        &["no", "hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step(
        "keyferry doctor access/prod -n tenant-a $CONFIG --discovery-ca ca.crt",
        &[],
    ),
    fails(
        1,
        "keyferry token tenant-b/prod $CONFIG",
        &["TargetNotGranted"],
    ),
    fails(1, "keyferry token tenant-a/prodd $SERVER", &["request id"]),
];

/// A target's admin makes the mistakes of everyday in the file, and one command names each.
const MISTAKES: &[Step] = &[
    fails(
        1,
        "sed '/audiences:/{n;s#- .*#- https://wrong.example.com#}' authentication.yaml > audience.yaml
         keyferry verify --auth-config audience.yaml --target-token-file direct.token",
        &["AudienceDiffers", "https://wrong.example.com"],
    ),
    fails(
        1,
        "sed '/ url: /s#\"$#/\"#' authentication.yaml > slash.yaml
         keyferry lint --network slash.yaml",
        &["DiscoveryIssuerDiffers", "https://hub.keyferry.test/"],
    ),
    fails(
        1,
        "sed '/certificateAuthority: |/,/END CERTIFICATE/d' authentication.yaml > authority.yaml
         keyferry lint --network authority.yaml",
        &["DiscoveryUntrusted"],
    ),
    fails(
        1,
        "sed 's/prefix: \"hub:\"/prefix: \"\"/' authentication.yaml > prefix.yaml
         keyferry lint prefix.yaml",
        &["EmptyPrefix"],
    ),
    fails(
        1,
        "sed '/discoveryURL:/s#/.well-known.*#/nothing\"#' authentication.yaml > place.yaml
         keyferry lint --network place.yaml",
        &["404"],
    ),
    fails(
        1,
        "sed 's/^    claimMappings:/    prefix: \"hub:\"\\n    claimMappings:/' authentication.yaml > field.yaml
         keyferry lint field.yaml",
        &["UnknownField", "claimMappings.username.prefix"],
    ),
    fails(
        1,
        "keyferry verify --auth-config authentication.yaml --target-token-file direct.token --at \
         2036-01-01T00:00:00Z",
        &["TokenExpired"],
    ),
    fails(
        1,
        "keyferry trust prod $CONFIG --issuer https://hub.keyferry.test --discovery-ca ca.crt --diff \
         prefix.yaml",
        &["claimMappings.username.prefix"],
    ),
];

async fn walk(
    shell: &Shell,
    steps: &[Step],
    replacements: &[(&str, String)],
) -> Result<Vec<String>, TestError> {
    let mut wrong = Vec::new();
    let replaced = |text: &str| {
        replacements
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    for Step { text, code, says } in steps {
        let (typed, says) = (
            replaced(text),
            says.iter()
                .map(|wanted| replaced(wanted))
                .collect::<Vec<_>>(),
        );
        let output = shell.run(&typed).await?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let missing: Vec<&String> = says
            .iter()
            .filter(|wanted| !said.contains(wanted.as_str()))
            .collect();
        if output.status.code() != Some(*code) || !missing.is_empty() {
            wrong.push(format!(
                "$ {typed}\nexit {:?}, wanted {code}; not said: {missing:?}\n{said}",
                output.status.code()
            ));
        }
        if said.contains("eyJ") && !text.contains("> ") {
            wrong.push(format!("$ {typed}\nprints a token"));
        }
    }
    Ok(wrong)
}

/// The flags for the server, for the policy without a server, and for the published documents.
fn replacements(shell: &Shell) -> [(&'static str, String); 3] {
    let server = format!(
        "--server {} --certificate-authority ca.crt --token-file caller.token",
        shell.api_url
    );
    let discovery = format!("{}/.well-known/openid-configuration", shell.discovery_url);
    [
        ("$SERVER", server),
        ("$CONFIG", "--config config.yaml".to_owned()),
        ("$DISCOVERY", discovery),
    ]
}

/// The recommended installation: KUBECONFIG names the hub, and the objects contain the rest.
pub(crate) async fn with_objects_on_the_hub(place: Here) -> TestResult {
    let shell = place
        .shell("objects", &place.world.broker, "tenant-a")
        .await?;
    let mut wrong = Vec::new();
    for steps in [OFFLINE, ADMINS, TENANT, MISTAKES, OBJECTS] {
        wrong.extend(walk(&shell, steps, &replacements(&shell)).await?);
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n\n").into())
    }
}

/// The steps that need objects on the hub.
const OBJECTS: &[Step] = &[
    step(
        "kubectl get targetcluster prod -o jsonpath={.status.issuer}",
        &["https://hub.keyferry.test"],
    ),
    step(
        "keyferry trust prod --config config.yaml --discovery-ca ca.crt",
        &["https://hub.keyferry.test"],
    ),
    step(
        "keyferry whoami secret/prod-kubeconfig -n tenant-a",
        &["hub:system:serviceaccount:tenant-a:reconciler"],
    ),
    step(
        "keyferry doctor secret/prod-kubeconfig -n tenant-a --discovery-url $DISCOVERY \
         --discovery-ca ca.crt",
        &[],
    ),
    step(
        "keyferry doctor kustomization/apps -n tenant-a --discovery-url $DISCOVERY --discovery-ca \
         ca.crt",
        &[],
    ),
    step(
        "keyferry fleet -n tenant-a",
        &["prod", "namespace tenant-a alone"],
    ),
    step("keyferry snapshot fleet", &["TargetAccesses to fleet"]),
    step(
        "keyferry fleet --snapshot fleet -n tenant-a",
        &["prod", "● ready"],
    ),
    step(
        "kubectl get secret prod-kubeconfig -n tenant-a -o yaml | keyferry import - --audience \
         https://other.example.com",
        &["kind: TargetCluster"],
    ),
];

/// The steps of onboarding that a file changes: its objects are shown to be added, and a target
/// that it has is shown its part.
const FILE: &[Step] = &[
    fails(
        3,
        "keyferry onboard target extra --target-kubeconfig target.kubeconfig $CONFIG",
        &["== add to config.yaml", "kind: TargetCluster", "NOT PROVEN"],
    ),
    fails(
        3,
        "keyferry onboard target prod --target-kubeconfig target.kubeconfig $CONFIG",
        &[
            "== on the control plane nodes of the target",
            "https://hub.keyferry.test",
            "nothing was written",
        ],
    ),
];

/// The same steps with a configuration file, as in `examples/in-cluster`.
pub(crate) async fn with_a_configuration_file(place: Here) -> TestResult {
    let shell = place.shell("file", &place.by_file, "tenant-b").await?;
    let mut wrong = Vec::new();
    // Here tenant-b is the tenant, and tenant-a the other tenant.
    let tenants = [
        ("tenant-a", "tenant-c"),
        ("tenant-b", "tenant-a"),
        ("tenant-c", "tenant-b"),
    ]
    .map(|(from, to)| (from, to.to_owned()));
    for steps in [OFFLINE, ADMINS, TENANT, MISTAKES, FILE] {
        wrong.extend(
            walk(
                &shell,
                steps,
                &[&tenants[..], &replacements(&shell)].concat(),
            )
            .await?,
        );
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n\n").into())
    }
}

/// Each command of the program is run here, or has its own suite that is named below.
pub(crate) async fn no_command_is_left_out(place: Here) -> TestResult {
    // The README's transcript covers `demo`, the exec plugin of the kubeconfig above covers
    // `credential`, and the rotation suite, which rotates the hub's keys, covers `revoke`.
    // `onboarding.rs` covers `onboard` and `offboard`, the suite of Flux the approval of client
    // certificates, `tree` and `inspect`, and the suite of inputs `runtime-info`, for which a target
    // needs an identity. The suite of rotations covers `rehearse`, the suite `reach` what `who-can`,
    // `reach` and `what-if` answer, and `dashboard` runs until its reader ends it: its own tests have it.
    // The suite `walking_path` covers `trace`.
    let elsewhere = [
        "demo",
        "help",
        "credential",
        "revoke",
        "onboard",
        "offboard",
        "approve-certificates",
        "runtime-info",
        "tree",
        "inspect",
        "rehearse",
        "who-can",
        "reach",
        "what-if",
        "dashboard",
        "trace",
    ];
    let shell = place
        .shell("left-out", &place.world.broker, "tenant-a")
        .await?;
    let help = shell.run("keyferry help").await?;
    let known_commands = commands_of(&String::from_utf8_lossy(&help.stdout));
    let typed: BTreeSet<String> = [OFFLINE, ADMINS, TENANT, OBJECTS]
        .into_iter()
        .flatten()
        .flat_map(|step| shell_commands(step.text))
        .filter_map(|command| {
            command
                .keyferry_arguments()
                .and_then(|words| words.first().cloned())
        })
        .collect();
    let missing: Vec<&String> = known_commands
        .iter()
        .filter(|name| !typed.contains(*name) && !elsewhere.contains(&name.as_str()))
        .collect();
    if known_commands.len() < 15 {
        return Err(format!("the help lists too few commands: {known_commands:?}").into());
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("not walked: {missing:?}").into())
    }
}

/// The names at the beginning of the indented lines of the help.
fn commands_of(help: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let word = line.strip_prefix("  ")?.split_whitespace().next()?;
        let plain = word
            .chars()
            .all(|character| character.is_ascii_lowercase() || character == '-');
        (!line.starts_with("   ") && plain && !word.starts_with('-')).then(|| word.to_owned())
    };
    help.lines().filter_map(name).collect()
}
