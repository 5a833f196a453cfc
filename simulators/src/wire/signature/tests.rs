//! A published example of a signed request, and every way not to be let in.

use super::*;

/// The example of AWS's own suite of test vectors, `get-vanilla` with a query (`get-vanilla-query-order-key-case`).
fn example() -> Incoming {
    let mut headers = HeaderMap::new();
    headers.insert("host", "example.amazonaws.com".parse().unwrap());
    headers.insert("x-amz-date", "20150830T123600Z".parse().unwrap());
    headers.insert(
        "authorization",
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
         SignedHeaders=host;x-amz-date, \
         Signature=b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
            .parse()
            .unwrap(),
    );
    Incoming {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        query: "Param2=value2&Param1=value1".to_owned(),
        headers,
        body: bytes::Bytes::new(),
    }
}

fn gatekeeper() -> Gatekeeper {
    Gatekeeper {
        region: "us-east-1".to_owned(),
        credentials: vec![Credentials {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        }],
        strictness: Strictness::Verify,
    }
}

fn then() -> Timestamp {
    "2015-08-30T12:36:00Z".parse().unwrap()
}

fn kind(answer: Result<Caller, Refusal>) -> RefusalKind {
    answer.expect_err("a refusal").kind
}

#[test]
fn a_published_signature_is_good() {
    let caller = gatekeeper().admit(&example(), "service", then()).unwrap();
    assert_eq!(caller.access_key.as_deref(), Some("AKIDEXAMPLE"));
}

#[test]
fn a_changed_request_is_not() {
    let gatekeeper = gatekeeper();
    for change in [
        (|request: &mut Incoming| request.method = "POST".to_owned()) as fn(&mut Incoming),
        |request| request.path = "/other".to_owned(),
        |request| request.query = "Param1=value1".to_owned(),
        |request| request.body = bytes::Bytes::from_static(b"x"),
        |request| drop(request.headers.insert("host", "elsewhere".parse().unwrap())),
    ] {
        let mut request = example();
        change(&mut request);
        assert_eq!(kind(gatekeeper.admit(&request, "service", then())), RefusalKind::InvalidSignature);
    }
}

#[test]
fn clocks_may_be_off_by_five_minutes() {
    for (seconds, is_admitted) in [(-301, false), (-300, true), (300, true), (301, false)] {
        let wall = then() + jiff::SignedDuration::from_secs(seconds);
        let answer = gatekeeper().admit(&example(), "service", wall);
        assert_eq!(answer.is_ok(), is_admitted, "{seconds}: {answer:?}");
    }
}

#[test]
fn strangers_other_regions_and_other_services_stay_outside() {
    let unsigned = {
        let mut request = example();
        request.headers.remove("authorization");
        request
    };
    assert_eq!(kind(gatekeeper().admit(&unsigned, "service", then())), RefusalKind::Unauthorized);
    assert_eq!(kind(gatekeeper().admit(&example(), "gamelift", then())), RefusalKind::InvalidSignature);
    let elsewhere = Gatekeeper { region: "eu-central-1".to_owned(), ..gatekeeper() };
    let refusal = elsewhere.admit(&example(), "service", then()).unwrap_err();
    assert!(refusal.message.contains("'eu-central-1', not 'us-east-1'"), "{refusal}");
    let nobody = Gatekeeper { credentials: Vec::new(), ..gatekeeper() };
    assert_eq!(kind(nobody.admit(&example(), "service", then())), RefusalKind::UnrecognizedClient);
    let mut with_token = example();
    with_token.headers.insert("x-amz-security-token", "stolen".parse().unwrap());
    assert_eq!(kind(gatekeeper().admit(&with_token, "service", then())), RefusalKind::UnrecognizedClient);
}

#[test]
fn whoever_only_reads_signatures_takes_any_but_not_of_elsewhere() {
    let reader = Gatekeeper { credentials: Vec::new(), strictness: Strictness::Read, ..gatekeeper() };
    let mut request = example();
    assert!(reader.admit(&request, "service", then()).is_ok());
    assert!(reader.admit(&request, "gamelift", then()).is_err());
    request.headers.remove("authorization");
    assert_eq!(reader.admit(&request, "service", then()).unwrap().access_key, None);
}

#[test]
fn credentials_of_a_role_expire() {
    let now = then();
    let expires = Credentials::role_expiry(now);
    let role = Credentials::of_role(expires);
    let mut request = example();
    request.headers.insert("x-amz-security-token", role.token.clone().unwrap().parse().unwrap());
    let known = |wall| gatekeeper().known(&role.access_key, &request, wall);
    assert_eq!(known(now).unwrap(), role);
    assert_eq!(known(expires).unwrap_err().kind, RefusalKind::ExpiredToken);
}
