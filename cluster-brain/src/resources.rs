//! Whether the API server has the resources that the brain works with, asked once at the start.

use std::time::Duration;

use berth_runtime::kube_client::{CallError, within};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::Api;

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(15);
/// The definitions we need, by name.
const NEEDED: [&str; 5] = [
    "fleets.agones.dev",
    "gameserversets.agones.dev",
    "gameservers.agones.dev",
    "fleetautoscalers.autoscaling.agones.dev",
    "gamenodes.berth.dev",
];
/// The field that an agent finds its servers by.
const SELECTABLE: &str = ".status.nodeName";

/// Why the resources do not do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("could not ask for resource definition {name}")]
    Ask { name: &'static str, source: CallError },
    #[error("resource definition {name} is missing; apply Berth's definitions first, then start again")]
    Missing { name: &'static str },
    #[error(
        "resource definition {name} has no selectable field {SELECTABLE}, so it is not Berth's; \
         apply Berth's definitions over it, then start again"
    )]
    Foreign { name: &'static str },
}

/// Asks for every definition.
///
/// # Errors
/// When one is missing, or was made by somebody else.
pub(crate) async fn require(client: &Client) -> Result<(), ResourceError> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for name in NEEDED {
        let asked = within(LIMIT, definitions.get_opt(name)).await;
        let definition = asked.map_err(|source| ResourceError::Ask { name, source })?;
        let definition = definition.ok_or(ResourceError::Missing { name })?;
        if name.starts_with("gameservers.") && !has_node_field(&definition) {
            return Err(ResourceError::Foreign { name });
        }
    }
    Ok(())
}

fn has_node_field(definition: &CustomResourceDefinition) -> bool {
    definition.spec.versions.iter().any(|version| {
        let fields = version.selectable_fields.as_deref().unwrap_or_default();
        version.served && fields.iter().any(|field| field.json_path == SELECTABLE)
    })
}
