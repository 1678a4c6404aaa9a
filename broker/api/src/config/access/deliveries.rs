//! Reads `deliveries[]` of a TargetAccess, with the names of the objects that they write.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::access_spec::{ArgoCdSpec, DeliverySpec};
use super::super::check::Check;
use super::super::document::Origin;
use super::super::duration::read_token_lifetime;
use super::secret_shape::read_secret_shape;
use super::{ArgoCd, ArgoCdForm, Delivery, DeliveryType};
use crate::name::ObjectName;

/// The names from which an object's name is made if none is written.
pub(super) struct DefaultNames<'a> {
    pub(super) access: &'a ObjectName,
    pub(super) target: &'a ObjectName,
}

/// Reads the list, and refuses duplicate names and objects.
pub(super) fn read_deliveries(
    specs: Vec<DeliverySpec>,
    names: &DefaultNames<'_>,
    check: &mut Check<'_>,
) -> Vec<Delivery> {
    let (mut known, mut objects) = (BTreeSet::new(), BTreeSet::new());
    let mut read = Vec::new();
    for (index, spec) in specs.into_iter().enumerate() {
        let path = format!("spec.deliveries[{index}]");
        let Some(delivery) = read_delivery(spec, &path, names, check) else {
            continue;
        };
        if !known.insert(delivery.name.clone()) {
            check.wrong(
                &format!("{path}.name"),
                "a second delivery has this name",
                "rename one of them",
            );
        }
        let object = delivery
            .object_name
            .clone()
            .map(|name| (object_kind(delivery.delivery_type), name));
        if object.is_some_and(|object| !objects.insert(object)) {
            let problem = "a second delivery writes the same object";
            check.wrong(
                &format!("{path}.objectName"),
                problem,
                "give each an objectName of its own",
            );
        }
        read.push(delivery);
    }
    read
}

fn read_delivery(
    spec: DeliverySpec,
    path: &str,
    names: &DefaultNames<'_>,
    check: &mut Check<'_>,
) -> Option<Delivery> {
    let name = check.take(
        &format!("{path}.name"),
        ObjectName::new(spec.name.clone()),
        "name the delivery",
    );
    let written_type = spec.delivery_type.as_str();
    let delivery_type =
        DeliveryType::parse(written_type).map_err(|error| format!("{written_type:?} {error}"));
    let delivery_type = check.take(
        &format!("{path}.type"),
        delivery_type,
        "use HTTP or Exec, or a shape that the controller writes",
    )?;
    let answers = DeliveryType::ON_REQUEST.contains(&delivery_type);
    if answers {
        refuse_object_fields(&spec, path, check);
    } else if *check.origin() == Origin::File {
        let problem =
            format!("{written_type} is written by the controller, which does not run on a file");
        check.wrong(&format!("{path}.type"), problem, "use HTTP or Exec");
        return None;
    }
    let argo_cd = read_argo_cd(spec.argo_cd, delivery_type, path, check);
    let secret = read_secret_shape(spec.secret, delivery_type, path, check);
    let object_name = if answers {
        None
    } else {
        read_object_name(spec.object_name, delivery_type, path, names, check)
    };
    let mut delivery = Delivery {
        name: name?,
        delivery_type,
        object_name,
        lifetime: None,
        argo_cd,
        secret,
    };
    delivery.lifetime = read_lifetime(spec.token_lifetime.as_deref(), &delivery, path, check);
    Some(delivery)
}

/// Refuses the fields of written objects for `HTTP` and `Exec`: they answer requests, so there is
/// no object to name.
fn refuse_object_fields(spec: &DeliverySpec, path: &str, check: &mut Check<'_>) {
    let shown = &spec.delivery_type;
    if spec.object_name.is_some() {
        check.wrong(
            &format!("{path}.objectName"),
            format!("{shown} writes no object"),
            "remove objectName",
        );
    }
}

fn read_object_name(
    written: Option<String>,
    delivery_type: DeliveryType,
    path: &str,
    names: &DefaultNames<'_>,
    check: &mut Check<'_>,
) -> Option<ObjectName> {
    let name = written.unwrap_or_else(|| match delivery_type {
        DeliveryType::KubeConfigSecret | DeliveryType::ClusterAPISecret => {
            format!("{}-kubeconfig", names.access)
        }
        DeliveryType::ArgoCDSecret => format!("cluster-{}", names.access),
        DeliveryType::ClientCertificateSecret => format!("{}-client-tls", names.access),
        DeliveryType::ClusterProfile => names.target.to_string(),
        DeliveryType::Exec | DeliveryType::FluxConfigMap | DeliveryType::HTTP => {
            names.access.to_string()
        }
    });
    let path = format!("{path}.objectName");
    if delivery_type == DeliveryType::ClusterAPISecret && !name.ends_with("-kubeconfig") {
        check.wrong(
            &path,
            "does not end with -kubeconfig, by which Cluster API finds it",
            "write <cluster>-kubeconfig",
        );
    }
    check.take(
        &path,
        ObjectName::new(name),
        "name it as a Kubernetes object",
    )
}

fn read_argo_cd(
    spec: Option<ArgoCdSpec>,
    delivery_type: DeliveryType,
    path: &str,
    check: &mut Check<'_>,
) -> Option<ArgoCd> {
    match (spec, delivery_type) {
        (None, DeliveryType::ArgoCDSecret) => {
            let problem = "is missing: without a project every AppProject could use the cluster";
            check.wrong(
                &format!("{path}.argoCD.project"),
                problem,
                "name the AppProject",
            );
            None
        }
        (None, _) => None,
        (Some(ArgoCdSpec { project, form }), DeliveryType::ArgoCDSecret) => {
            // An AppProject's name follows the rules of any object: lower case, no underscore.
            if ObjectName::new(project.as_str()).is_err() {
                check.wrong(
                    &format!("{path}.argoCD.project"),
                    "is not the name of an AppProject",
                    "write its name",
                );
            }
            let path = format!("{path}.argoCD.form");
            let form = check.choose_or_default(
                &path,
                form.as_deref(),
                "a valid value",
                ArgoCdForm::ALL,
            )?;
            Some(ArgoCd { project, form })
        }
        (Some(_), _) => {
            check.wrong(
                &format!("{path}.argoCD"),
                "is set on a delivery that is not for Argo CD",
                "remove argoCD",
            );
            None
        }
    }
}

fn read_lifetime(
    text: Option<&str>,
    delivery: &Delivery,
    path: &str,
    check: &mut Check<'_>,
) -> Option<Duration> {
    let (text, path) = (text?, format!("{path}.tokenLifetime"));
    if !delivery.holds_token() {
        let problem =
            "is set on a delivery that writes no token and takes its lifetime from the target";
        check.wrong(&path, problem, "remove tokenLifetime");
        return None;
    }
    read_token_lifetime(text, &path, check)
}

/// The kind of the written object: the names of one kind must be unique.
fn object_kind(delivery_type: DeliveryType) -> &'static str {
    match delivery_type {
        DeliveryType::ArgoCDSecret
        | DeliveryType::ClientCertificateSecret
        | DeliveryType::ClusterAPISecret
        | DeliveryType::KubeConfigSecret => "Secret",
        DeliveryType::ClusterProfile => "ClusterProfile",
        DeliveryType::FluxConfigMap => "ConfigMap",
        DeliveryType::Exec | DeliveryType::HTTP => "",
    }
}
