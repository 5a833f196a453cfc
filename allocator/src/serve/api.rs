//! The aggregated API `allocation.agones.dev/v1`, behind the API server.
//!
//! The API server has authenticated the user and speaks for it; whether the user may allocate is asked again here, so
//! that nothing depends on who can reach this port.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use berth_api::allocation::{API_VERSION, Fault, GameServerAllocation, KIND};
use berth_runtime::error::chain;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::authorization::{Authorizer, Verdict};
use super::front_proxy::FrontProxy;
use super::listen::{Caller, Entrance};
use crate::office::{Office, OfficeError};

/// Largest body, as the API server has it.
const LARGEST: usize = 3 * 1024 * 1024;
const GROUP: &str = "allocation.agones.dev";
const RESOURCE: &str = "gameserverallocations";

/// The aggregated API.
#[derive(Clone)]
pub struct ApiService {
    office: Office,
    front: watch::Receiver<Arc<FrontProxy>>,
    authorizer: Authorizer,
}

/// The two forms of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Yaml,
}

impl ApiService {
    /// A service for users for whom the API server speaks so.
    pub fn new(office: Office, front: watch::Receiver<Arc<FrontProxy>>, authorizer: Authorizer) -> Self {
        Self { office, front, authorizer }
    }

    async fn allocate(&self, request: Request<Body>, caller: &Caller, namespace: &str) -> Response {
        let (parts, body) = request.into_parts();
        let accepted = accepted(&parts.headers);
        let front = Arc::clone(&self.front.borrow());
        let common_name = caller.subject.as_ref().and_then(|subject| subject.common_name.as_deref());
        let Some(user) = front.user(common_name, &parts.headers) else {
            let message = "only the API server may speak here, for a user";
            return failure(StatusCode::UNAUTHORIZED, "Unauthorized", message, json!({}), accepted);
        };
        match self.authorizer.may_allocate(&user, namespace).await {
            Ok(Verdict::Allowed) => {}
            Ok(Verdict::Denied(reason)) => {
                let message = format!(
                    "{RESOURCE}.{GROUP} is forbidden: User {:?} cannot create resource {RESOURCE:?} in API group \
                     {GROUP:?} in the namespace {namespace:?}{}{reason}",
                    user.name,
                    if reason.is_empty() { "" } else { ": " },
                );
                let details = json!({ "group": GROUP, "kind": RESOURCE });
                return failure(StatusCode::FORBIDDEN, "Forbidden", &message, details, accepted);
            }
            Err(error) => {
                return plain(StatusCode::INTERNAL_SERVER_ERROR, chain(&error));
            }
        }
        if parts.uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("dryRun="))) {
            let message = "an allocation cannot be tried without being made: dryRun is not supported";
            return failure(StatusCode::BAD_REQUEST, "BadRequest", message, json!({}), accepted);
        }
        let asked = match read(&parts.headers, body, namespace).await {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        match self.office.serve(asked).await {
            Ok(mut served) => {
                if served.api_version.is_empty() {
                    "v1".clone_into(&mut served.api_version);
                }
                written(StatusCode::CREATED, &json!(served), accepted)
            }
            Err(OfficeError::Invalid(faults)) => invalid(&faults, accepted),
            Err(error @ (OfficeError::Take(_) | OfficeError::Clusters(_))) => {
                plain(StatusCode::INTERNAL_SERVER_ERROR, chain(&error))
            }
        }
    }
}

impl Entrance for ApiService {
    async fn answer(&self, request: Request<Body>, caller: Caller) -> Response {
        let path = request.uri().path().trim_end_matches('/').to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (parts.as_slice(), request.method()) {
            (["apis", GROUP, "v1", "namespaces", namespace, RESOURCE], &Method::POST) => {
                self.allocate(request, &caller, namespace).await
            }
            (["apis", GROUP, "v1", "namespaces", _, RESOURCE], _) => {
                let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
                refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
                refusal
            }
            (["apis", GROUP, "v1"], &Method::GET) => shown(&resources(), request.headers()),
            (["apis", GROUP], &Method::GET) => shown(&group(), request.headers()),
            // Newer forms of discovery are not spoken: the API server then asks for the group itself.
            (["apis"], &Method::GET) => plain(StatusCode::NOT_ACCEPTABLE, "Not Acceptable"),
            (["openapi", "v2"], &Method::GET) => {
                shown(&json!({ "info": { "title": GROUP }, "paths": null }), request.headers())
            }
            (["openapi", "v3"], &Method::GET) => shown(&json!({ "paths": {} }), request.headers()),
            ([""] | [], &Method::GET) => plain(StatusCode::OK, ""),
            _ => plain(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }
}

async fn read(headers: &HeaderMap, body: Body, namespace: &str) -> Result<GameServerAllocation, Response> {
    let body = Limited::new(body, LARGEST).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 3 MiB");
        }
        plain(StatusCode::BAD_REQUEST, error.to_string())
    })?;
    let body = body.to_bytes();
    let unreadable = |reason: String| plain(StatusCode::INTERNAL_SERVER_ERROR, reason);
    let mut asked: GameServerAllocation = match sent(headers) {
        Ok(Form::Json) => serde_json::from_slice(&body).map_err(|error| unreadable(error.to_string()))?,
        Ok(Form::Yaml) => serde_yaml_ng::from_slice(&body).map_err(|error| unreadable(error.to_string()))?,
        Err(kind) => {
            return Err(unreadable(format!("{kind:?} is neither application/json nor application/yaml")));
        }
    };
    for (given, wanted, field) in
        [(&asked.api_version, API_VERSION, "apiVersion"), (&asked.kind, KIND, "kind")]
    {
        if !given.is_empty() && given != wanted {
            return Err(unreadable(format!("{field} is {given:?} and must be {wanted:?}")));
        }
    }
    KIND.clone_into(&mut asked.kind);
    asked.metadata.namespace = Some(namespace.to_owned());
    asked.metadata.creation_timestamp = Some(Time(berth_runtime::clock::now()));
    Ok(asked)
}

/// The form of a body. Parameters such as the character set do not matter; without a word it is JSON.
fn sent(headers: &HeaderMap) -> Result<Form, String> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match kind.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => Ok(Form::Json),
        "application/yaml" => Ok(Form::Yaml),
        _ => Err(kind.to_owned()),
    }
}

/// The form of the answer: the first one that the caller names and we know.
fn accepted(headers: &HeaderMap) -> Form {
    let named = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let kinds = named.flat_map(|value| value.split(','));
    let known = |kind: &str| match kind.split(';').next().unwrap_or_default().trim() {
        "application/json" | "*/*" | "application/*" => Some(Form::Json),
        "application/yaml" => Some(Form::Yaml),
        _ => None,
    };
    kinds.filter_map(known).next().unwrap_or(Form::Json)
}

fn invalid(faults: &[Fault], form: Form) -> Response {
    let causes: Vec<Value> = faults
        .iter()
        .map(|fault| {
            json!({ "reason": fault.kind.reason(), "message": fault.kind.to_string(), "field": fault.field })
        })
        .collect();
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let told = if let [one] = told.as_slice() { one.clone() } else { format!("[{}]", told.join(", ")) };
    let message = format!("{KIND}.{GROUP} \"\" is invalid: {told}");
    let details = json!({ "group": GROUP, "kind": KIND, "causes": causes });
    failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &message, details, form)
}

fn failure(code: StatusCode, reason: &str, message: &str, details: Value, form: Form) -> Response {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code.as_u16(),
    });
    written(code, &status, form)
}

fn shown(value: &Value, headers: &HeaderMap) -> Response {
    written(StatusCode::OK, value, accepted(headers))
}

fn written(code: StatusCode, value: &Value, form: Form) -> Response {
    let (kind, text) = match form {
        Form::Json => ("application/json", value.to_string()),
        // A value of JSON is always one of YAML.
        Form::Yaml => ("application/yaml", serde_yaml_ng::to_string(value).unwrap_or_default()),
    };
    (code, [(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

fn plain(code: StatusCode, text: impl Into<String>) -> Response {
    (code, text.into()).into_response()
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": [{
            "name": RESOURCE,
            "singularName": "gameserverallocation",
            "namespaced": true,
            "kind": KIND,
            "verbs": ["create"],
            "shortNames": ["gsa"],
        }],
    })
}

fn group() -> Value {
    let version = json!({ "groupVersion": API_VERSION, "version": "v1" });
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    })
}
