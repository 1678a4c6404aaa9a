//! Between calls.

use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use crate::setup::{Said, Setup, exec_info_json, jwt, token};

fn succeeded(said: &Said) {
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains(&token(600)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_call_does_not_ask_the_server() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    for _ in 0..3 {
        succeeded(&setup.run(&[], &exec_info).await);
    }
    assert_eq!(setup.asked_for().len(), 1);
    // Another client, and so another answer to what it may have.
    let mut cluster = setup.cluster();
    cluster["server"] = json!("https://prod.example.com:6443/");
    succeeded(&setup.run(&[], &exec_info_json("v1", cluster)).await);
    assert_eq!(setup.asked_for().len(), 2);
    // The same file holds another's token now.
    std::fs::write(
        setup.token_file(),
        jwt(&json!({ "iss": "https://hub", "aud": ["keyferry.dev"], "sub": "system:serviceaccount:tenant-a:other" })),
    )
    .unwrap();
    succeeded(&setup.run(&[], &exec_info).await);
    assert_eq!(setup.asked_for().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_shares_one_fetch() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    let crowd = futures::future::join_all((0..8).map(|_| setup.run(&[], &exec_info))).await;
    crowd.iter().for_each(succeeded);
    assert_eq!(setup.asked_for().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoilt_cache_costs_a_call_and_nothing_else() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    succeeded(&setup.run(&[], &exec_info).await);
    let entry = || {
        std::fs::read_dir(setup.cache())
            .unwrap()
            .map(|it| it.unwrap().path())
            .find(|it| it.extension().is_none())
            .unwrap()
    };
    let path = entry();
    let good = std::fs::read(&path).unwrap();
    let spoil: [(&str, &dyn Fn()); 5] = [
        ("mode", &|| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap()
        }),
        ("half", &|| {
            std::fs::write(&path, &good[..good.len() / 2]).unwrap()
        }),
        ("junk", &|| {
            std::fs::write(&path, "[".repeat(10_000)).unwrap()
        }),
        ("gone", &|| std::fs::remove_file(&path).unwrap()),
        ("link", &|| {
            std::fs::rename(&path, path.with_extension("elsewhere")).unwrap();
            symlink(path.with_extension("elsewhere"), &path).unwrap();
        }),
    ];
    for (index, (how, spoil)) in spoil.iter().enumerate() {
        spoil();
        succeeded(&setup.run(&[], &exec_info).await);
        assert_eq!(setup.asked_for().len(), index + 2, "{how}");
        succeeded(&setup.run(&[], &exec_info).await);
        assert_eq!(setup.asked_for().len(), index + 2, "{how}: whole again");
    }
    let asked = setup.asked_for().len();
    // Where nothing can be written, and where others can enter.
    for (cache, why) in [
        ("/proc/keyferry", "is not used"),
        (setup.folder().to_str().unwrap(), "is not used"),
    ] {
        std::fs::set_permissions(setup.folder(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let said = setup.run(&["--cache-dir", cache], &exec_info).await;
        succeeded(&said);
        assert!(said.stderr.contains(why), "{}", said.stderr);
    }
    assert_eq!(setup.asked_for().len(), asked + 2);
}
