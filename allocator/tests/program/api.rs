//! The aggregated API, through the API server.

use berth_api::lifecycle::State;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};

use super::cluster::Cluster;

/// Where allocations are asked for.
pub(crate) fn path(cluster: &Cluster) -> String {
    format!("/apis/allocation.agones.dev/v1/namespaces/{}/gameserverallocations", cluster.namespace)
}

pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    kind: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

async fn ask(client: &Client, request: Request<String>) -> Answer {
    let request = request.map(|body| kube::client::Body::from(body.into_bytes()));
    let answer = client.send(request).await.expect("an answer");
    let code = answer.status();
    let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.to_owned();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    Answer { code, kind, text: String::from_utf8_lossy(&body).into_owned() }
}

pub(crate) async fn post(client: &Client, path: &str, kind: &str, body: impl Into<String>) -> Answer {
    let request = Request::post(path).header("content-type", kind).header("accept", "application/json");
    ask(client, request.body(body.into()).expect("a request")).await
}

async fn allocate(client: &Client, path: &str, spec: Value) -> Answer {
    let body =
        json!({ "apiVersion": "allocation.agones.dev/v1", "kind": "GameServerAllocation", "spec": spec });
    post(client, path, "application/json", body.to_string()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_allocated_through_the_api_server() {
    let cluster = Cluster::start("api").await;
    let counters = json!({ "counters": { "rooms": { "count": 1, "capacity": 10 } } });
    cluster.create("gs1", State::Ready, counters).await;
    let allocator = cluster.allocator("allocator", &[]).await;
    cluster.serve_api(&allocator).await;
    let (client, path) = (&cluster.client, &path(&cluster));

    // A server, with what was asked to be done to it.
    let spec = json!({
        "metadata": { "labels": { "mode": "x" }, "annotations": { "map": "ice" } },
        "counters": { "rooms": { "action": "Increment", "amount": 1 }, "none": { "capacity": 4 } },
    });
    let answer = allocate(client, path, spec).await;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text);
    let told = answer.json();
    assert_eq!(told["metadata"]["name"], "gs1");
    assert_eq!(told["metadata"]["namespace"], cluster.namespace.as_str());
    let status = &told["status"];
    assert_eq!((&status["state"], &status["gameServerName"]), (&json!("Allocated"), &json!("gs1")));
    assert_eq!(status["counters"]["rooms"], json!({ "count": 2, "capacity": 10 }));
    assert_eq!(status["metadata"]["labels"]["mode"], "x");
    assert_eq!(status["ports"], json!([{ "name": "default", "port": 7000 }]));
    assert_eq!((&status["address"], &status["nodeName"]), (&json!("192.0.2.1"), &json!("node-a")));
    assert_eq!(status["source"], "local");
    let server = cluster.servers().get("gs1").await.expect("the server");
    assert_eq!(server.state(), Some(State::Allocated));
    assert_eq!(server.annotation("map"), Some("ice"));
    let first = server.annotation("agones.dev/last-allocated").expect("a time").to_owned();
    first.parse::<jiff::Timestamp>().expect("RFC 3339");

    // There is no other, and that is no error.
    let answer = allocate(client, path, json!({})).await;
    assert_eq!(answer.code, StatusCode::CREATED);
    assert_eq!(
        answer.json()["status"],
        json!({ "state": "UnAllocated", "gameServerName": "", "source": "" })
    );

    // The one in use may be allocated again where that is asked for.
    let again = json!({ "selectors": [{ "gameServerState": "Allocated" }] });
    let answer = allocate(client, path, again).await;
    assert_eq!(answer.json()["status"]["gameServerName"], "gs1");
    let server = cluster.servers().get("gs1").await.expect("the server");
    assert_ne!(server.annotation("agones.dev/last-allocated"), Some(first.as_str()));

    // Everything that is wrong is told at once.
    let answer = allocate(
        client,
        path,
        json!({
            "scheduling": "Nope",
            "selectors": [{ "gameServerState": "Creating", "counters": { "r": { "minAvailable": 5, "maxAvailable": 2 } } }],
            "priorities": [{ "type": "John", "key": "", "order": "Dog" }],
            "counters": { "a": { "amount": 1 } },
            "metadata": { "labels": { "good": "not valid!" } },
        }),
    )
    .await;
    assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text);
    let told = answer.json();
    assert_eq!(
        (&told["kind"], &told["reason"], &told["code"]),
        (&json!("Status"), &json!("Invalid"), &json!(422))
    );
    let causes = told["details"]["causes"].as_array().expect("causes");
    let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().expect("a field")).collect();
    assert_eq!(
        fields,
        [
            "spec.scheduling",
            "spec.selectors[0].gameServerState",
            "spec.selectors[0].counters[r].minAvailable",
            "spec.priorities[0]",
            "spec.priorities[0]",
            "spec.priorities[0]",
            "spec.metadata.labels",
            "spec.counters[a]",
        ]
    );

    // Forms.
    let answer = post(client, path, "application/json; charset=utf-8", "{}").await;
    assert_eq!((answer.code, &answer.json()["apiVersion"]), (StatusCode::CREATED, &json!("v1")));
    for (kind, body) in [("application/json", "{"), ("text/foo", "{}"), ("application/json", r#"{"spec":1}"#)]
    {
        let answer = post(client, path, kind, body).await;
        assert_eq!(answer.code, StatusCode::INTERNAL_SERVER_ERROR, "{kind} {body}");
        assert!(answer.kind.starts_with("text/plain"), "{}", answer.kind);
    }
    let yaml =
        Request::post(path).header("content-type", "application/yaml").header("accept", "application/yaml");
    let answer =
        ask(client, yaml.body("spec:\n  scheduling: Distributed\n".to_owned()).expect("a request")).await;
    assert_eq!((answer.code, answer.kind.as_str()), (StatusCode::CREATED, "application/yaml"));
    assert!(answer.text.contains("scheduling: Distributed"), "{}", answer.text);
    let get = Request::get(path).body(String::new()).expect("a request");
    assert_eq!(ask(client, get).await.code, StatusCode::METHOD_NOT_ALLOWED);
    let huge = format!("{{\"metadata\":{{\"name\":\"{}\"}}}}", "x".repeat(4 * 1024 * 1024));
    assert_eq!(post(client, path, "application/json", huge).await.code, StatusCode::PAYLOAD_TOO_LARGE);
    let tried = Request::post(format!("{path}?dryRun=All")).body("{}".to_owned()).expect("a request");
    assert_eq!(ask(client, tried).await.code, StatusCode::BAD_REQUEST);

    // Discovery.
    let listed = Request::get("/apis/allocation.agones.dev/v1").body(String::new()).expect("a request");
    let listed = ask(client, listed).await.json();
    assert_eq!(listed["resources"][0]["name"], "gameserverallocations");
    assert_eq!(listed["resources"][0]["shortNames"], json!(["gsa"]));

    // Who may not, may not; and nobody may past the API server.
    let stranger = cluster.plane.client_for("stranger", &[]).await.expect("a client");
    assert_eq!(allocate(&stranger, path, json!({})).await.code, StatusCode::FORBIDDEN);
    let past = direct(path, allocator.api_port).await;
    assert_eq!(past, StatusCode::UNAUTHORIZED);
}

/// Asks the allocator itself, claiming to be an administrator.
async fn direct(path: &str, port: u16) -> StatusCode {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().expect("a URL"));
    config.accept_invalid_certs = true;
    let client = Client::try_from(config).expect("a client");
    let request = Request::post(path)
        .header("x-remote-user", "admin")
        .header("x-remote-group", "system:masters")
        .body("{}".to_owned());
    ask(&client, request.expect("a request")).await.code
}
