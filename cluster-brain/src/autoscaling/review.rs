//! What a webhook is asked and where, and how its answer is read. Pure.

use std::fmt::Write as _;

use berth_api::fleet::{Fleet, FleetStatus};
use berth_api::fleet_autoscaler::{Review, ReviewRequest, WebhookPolicy};
use http::Uri;

use super::Desired;

/// Port of a Service where none is given.
const PORT: u16 = 8000;

/// A webhook that is nowhere, or an answer that is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("it has neither a url nor a service")]
    Nowhere,
    #[error("{address:?} is no address")]
    Address { address: String, source: http::uri::InvalidUri },
    #[error("{0:?} is not an address that begins with http:// or https://")]
    Scheme(String),
    #[error("its answer is no JSON as agreed")]
    Json(#[from] serde_json::Error),
    #[error("its answer has no response")]
    NoResponse,
    #[error("its answer wants {0} servers")]
    Negative(i32),
}

/// Where the webhook is.
pub(super) fn address(webhook: &WebhookPolicy) -> Result<Uri, ReviewError> {
    let text = match (webhook.url.as_deref().filter(|url| !url.is_empty()), &webhook.service) {
        (Some(url), _) => url.to_owned(),
        (None, Some(service)) => {
            let is_safe = webhook.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty());
            let scheme = if is_safe { "https" } else { "http" };
            let namespace = if service.namespace.is_empty() { "default" } else { &service.namespace };
            let path = service.path.as_deref().unwrap_or_default().trim_start_matches('/');
            let port = service.port.unwrap_or(PORT);
            format!("{scheme}://{}.{namespace}.svc:{port}/{path}", service.name)
        }
        (None, None) => return Err(ReviewError::Nowhere),
    };
    let address: Uri =
        text.parse().map_err(|source| ReviewError::Address { address: text.clone(), source })?;
    match address.scheme_str() {
        Some("http" | "https") => Ok(address),
        _ => Err(ReviewError::Scheme(text)),
    }
}

/// What is asked. `number` makes the question one of its own.
pub(super) fn question(fleet: &Fleet, number: u128) -> Review {
    let metadata = &fleet.metadata;
    let status = fleet.status.clone().unwrap_or_default();
    let request = ReviewRequest {
        uid: uid(number),
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        // Conditions are our own word, which the agreement does not know.
        status: FleetStatus { conditions: None, ..status },
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
    };
    Review { request: Some(request), response: None }
}

/// What the answer means. It is taken as it is, whatever it says; a Fleet that shall not scale keeps its number.
pub(super) fn read(answer: &[u8], fleet: &Fleet) -> Result<Desired, ReviewError> {
    let review: Review = serde_json::from_slice(answer)?;
    let response = review.response.ok_or(ReviewError::NoResponse)?;
    match response.scale {
        false => Ok(Desired::free(fleet.spec.replicas())),
        true if response.replicas < 0 => Err(ReviewError::Negative(response.replicas)),
        true => Ok(Desired::free(response.replicas)),
    }
}

/// A random number as a UUID of version 4.
fn uid(number: u128) -> String {
    let marked = (number & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let mut text = String::new();
    for (index, digit) in format!("{marked:032x}").chars().enumerate() {
        if matches!(index, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        // Writing to a String does not fail.
        let _ = text.write_char(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use berth_api::fleet_autoscaler::ServiceReference;
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn service(path: Option<&str>, port: Option<u16>) -> WebhookPolicy {
        let path = path.map(str::to_owned);
        let service = ServiceReference { namespace: "ns".to_owned(), name: "svc".to_owned(), path, port };
        WebhookPolicy { service: Some(service), ..WebhookPolicy::default() }
    }

    #[test]
    fn a_service_becomes_an_address() {
        let text = |webhook: &WebhookPolicy| address(webhook).expect("an address").to_string();
        assert_eq!(text(&service(Some("scale"), None)), "http://svc.ns.svc:8000/scale");
        assert_eq!(text(&service(Some("/scale"), Some(80))), "http://svc.ns.svc:80/scale");
        assert_eq!(text(&service(None, None)), "http://svc.ns.svc:8000/");
        let safe = WebhookPolicy { ca_bundle: Some(ByteString(vec![1])), ..service(None, Some(443)) };
        assert_eq!(text(&safe), "https://svc.ns.svc:443/");
        let url = |url: &str| WebhookPolicy { url: Some(url.to_owned()), ..WebhookPolicy::default() };
        assert_eq!(text(&url("https://a.example/b?c=d")), "https://a.example/b?c=d");
        for bad in [url(""), url("ftp://a.example/"), url("a.example"), url("http://")] {
            assert!(address(&bad).is_err(), "{bad:?}");
        }
    }

    fn fleet() -> Fleet {
        serde_json::from_value(json!({
            "metadata": {"name": "lobby", "namespace": "games", "labels": {"mode": "duel"}},
            "spec": {"replicas": 7, "template": {"spec": {"template": {}}}},
            "status": {
                "replicas": 5, "readyReplicas": 3, "reservedReplicas": 0, "allocatedReplicas": 2,
                "counters": {"rooms": {"allocatedCount": 1, "allocatedCapacity": 2, "count": 3, "capacity": 4}},
                "conditions": [{
                    "type": "Placed", "status": "True", "reason": "x", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }))
        .expect("a Fleet")
    }

    #[test]
    fn the_question_is_as_agreed() {
        let expected = json!({
            "request": {
                "uid": "00000000-0000-4000-8000-000000000007",
                "name": "lobby",
                "namespace": "games",
                "labels": {"mode": "duel"},
                "status": {
                    "replicas": 5, "readyReplicas": 3, "reservedReplicas": 0, "allocatedReplicas": 2,
                    "counters": {"rooms": {
                        "allocatedCount": 1, "allocatedCapacity": 2, "count": 3, "capacity": 4,
                    }},
                },
            },
            "response": null,
        });
        assert_eq!(json!(question(&fleet(), 7)), expected);
        let all = uid(u128::MAX);
        assert_eq!(all, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn an_answer_is_read_as_agreed() {
        let answered = |answer: serde_json::Value| read(answer.to_string().as_bytes(), &fleet());
        let scale = |scale: bool, replicas: i32| {
            answered(json!({"request": null, "response": {"uid": "1", "scale": scale, "replicas": replicas}}))
        };
        assert_eq!(scale(true, 500).expect("an answer"), Desired::free(500));
        assert_eq!(scale(true, 0).expect("an answer"), Desired::free(0));
        assert_eq!(scale(false, 500).expect("an answer"), Desired::free(7), "it keeps its number");
        assert_eq!(answered(json!({"response": {}})).expect("an answer"), Desired::free(7));
        assert!(matches!(scale(true, -1), Err(ReviewError::Negative(-1))));
        assert!(matches!(answered(json!({"request": {}})), Err(ReviewError::NoResponse)));
        assert!(matches!(answered(json!({"response": {"scale": "yes"}})), Err(ReviewError::Json(_))));
        assert!(matches!(read(b"scale!", &fleet()), Err(ReviewError::Json(_))));
    }
}
