//! ServiceAccounts at the allocator service, by tokens instead of certificates.

use berth_api::allocation::proto::AllocationRequest;
use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::lifecycle::State;
use berth_dev::install;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tonic::{Code, Request};

use super::certificates::Authority;
use super::cluster::{Allocator, Cluster, allocate_if_let_in, manifests};
use super::service::rest_with;

const AUDIENCE: &str = "allocator.test";

/// A token of an account of the test's namespace, for this audience.
pub(crate) async fn token(cluster: &Cluster, account: &str, audience: &str) -> String {
    let accounts = Api::<ServiceAccount>::namespaced(cluster.client.clone(), &cluster.namespace);
    if accounts.get_opt(account).await.expect("an answer").is_none() {
        let made = serde_json::from_value(json!({ "metadata": { "name": account } })).expect("an account");
        accounts.create(&PostParams::default(), &made).await.expect("a created account");
    }
    let spec = TokenRequestSpec { audiences: vec![audience.to_owned()], ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    answer.expect("a token").status.expect("a token").token
}

/// Lets an account of the test's namespace allocate there.
pub(crate) async fn permit(cluster: &Cluster, account: &str) {
    let role: Role = serde_json::from_value(json!({
        "metadata": { "name": "matchmaker" },
        "rules": [{
            "apiGroups": ["allocation.agones.dev"], "resources": ["gameserverallocations"], "verbs": ["create"],
        }],
    }))
    .expect("a Role");
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "matchmaker" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "matchmaker" },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": cluster.namespace }],
    }))
    .expect("a RoleBinding");
    let (client, namespace) = (cluster.client.clone(), &cluster.namespace);
    let roles = Api::<Role>::namespaced(client.clone(), namespace);
    roles.create(&PostParams::default(), &role).await.expect("a created Role");
    let bindings = Api::<RoleBinding>::namespaced(client, namespace);
    bindings.create(&PostParams::default(), &binding).await.expect("a created RoleBinding");
}

/// What becomes of a call without a certificate, with this token.
async fn call(cluster: &Cluster, allocator: &Allocator, namespace: &str, token: Option<&str>) -> Code {
    let channel = cluster.channel(allocator, None).await.expect("a connection");
    let mut request =
        Request::new(AllocationRequest { namespace: namespace.to_owned(), ..AllocationRequest::default() });
    if let Some(token) = token {
        let header = format!("Bearer {token}").parse().expect("a header");
        request.metadata_mut().insert("authorization", header);
    }
    match AllocationServiceClient::new(channel).allocate(request).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_get_in_by_tokens_where_that_is_turned_on() {
    let cluster = Cluster::start("accounts").await;
    let rights = manifests().join("allocator/service-account-tokens.yaml");
    install::apply(&cluster.client, &rights).await.expect("applied rights");
    for name in ["gs1", "gs2"] {
        cluster.create(name, State::Ready, json!({})).await;
    }
    let allocator = cluster.allocator("allocator", &["--token-audience", AUDIENCE]).await;
    let namespace = cluster.namespace.as_str();
    let good = token(&cluster, "matchmaker", AUDIENCE).await;
    let stranger = token(&cluster, "stranger", AUDIENCE).await;
    let of_the_api = token(&cluster, "matchmaker", "https://kubernetes.default.svc").await;

    // Whom the rules do not know is let in, and may do nothing.
    assert_eq!(call(&cluster, &allocator, namespace, Some(&stranger)).await, Code::PermissionDenied);
    permit(&cluster, "matchmaker").await;
    assert_eq!(call(&cluster, &allocator, namespace, Some(&good)).await, Code::Ok);
    assert_eq!(call(&cluster, &allocator, "default", Some(&good)).await, Code::PermissionDenied);
    for (token, what) in [
        (None, "nothing"),
        (Some("nonsense"), "no token"),
        (Some(of_the_api.as_str()), "a token that is for the API server"),
    ] {
        assert_eq!(call(&cluster, &allocator, namespace, token).await, Code::Unauthenticated, "{what}");
    }

    // The same over REST.
    let body = json!({ "namespace": namespace }).to_string();
    let rest = async |token: Option<&str>| -> (u16, Value) {
        rest_with(&allocator, None, token, "POST", "/gameserverallocation", body.as_bytes()).await
    };
    let (code, told) = rest(Some(&good)).await;
    assert_eq!(code, 200, "{told}");
    assert!(["gs1", "gs2"].contains(&told["gameServerName"].as_str().expect("a name")), "{told}");
    let (code, told) = rest(Some(&stranger)).await;
    assert_eq!((code, &told["code"]), (403, &json!(7)), "{told}");
    let (code, told) = rest(None).await;
    assert_eq!((code, &told["code"]), (401, &json!(16)), "{told}");

    // Certificates do as before: ours opens every namespace, and one of somebody else's none.
    let channel = cluster.channel(&allocator, Some(&cluster.client_certificate())).await;
    let asked = AllocationRequest { namespace: namespace.to_owned(), ..AllocationRequest::default() };
    let answer = AllocationServiceClient::new(channel.expect("a connection")).allocate(asked.clone()).await;
    assert_eq!(answer.expect_err("all are in use").code(), Code::ResourceExhausted);
    let forged = Authority::new("elsewhere").client("matchmaker");
    if let Ok(channel) = cluster.channel(&allocator, Some(&forged)).await {
        let answer = allocate_if_let_in(channel, asked).await;
        assert!(!matches!(answer.expect_err("a refusal").code(), Code::Ok | Code::ResourceExhausted));
    }
}

/// Without the setting nothing but a certificate opens it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_alone_opens_nothing_by_default() {
    let cluster = Cluster::start("accounts-off").await;
    cluster.create("gs1", State::Ready, json!({})).await;
    let allocator = cluster.allocator("allocator", &[]).await;
    let good = token(&cluster, "matchmaker", AUDIENCE).await;
    permit(&cluster, "matchmaker").await;
    if let Ok(channel) = cluster.channel(&allocator, None).await {
        let mut request = Request::new(AllocationRequest {
            namespace: cluster.namespace.clone(),
            ..AllocationRequest::default()
        });
        let header = format!("Bearer {good}").parse().expect("a header");
        request.metadata_mut().insert("authorization", header);
        allocate_if_let_in(channel, request).await.expect_err("no connection");
    }
    let server = cluster.servers().get("gs1").await.expect("the server");
    assert_eq!(server.state(), Some(State::Ready));
}
