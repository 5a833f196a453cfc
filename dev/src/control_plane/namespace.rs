//! A namespace for one test.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};

/// Makes one with a name of its own, and the service account that pods get when they name none.
pub(super) async fn make(client: kube::Client, purpose: &str) -> Result<String, kube::Error> {
    let wanted = Namespace {
        metadata: ObjectMeta { generate_name: Some(format!("{purpose}-")), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &wanted).await?;
    let name = made.metadata.name.unwrap_or_default();
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some("default".to_owned()), ..ObjectMeta::default() },
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client, &name);
    match accounts.create(&PostParams::default(), &account).await {
        // With controllers, theirs may have been first.
        Err(kube::Error::Api(refusal)) if refusal.code == 409 => Ok(name),
        Err(error) => Err(error),
        Ok(_) => Ok(name),
    }
}
