//! Which call a path and a method mean. Pure.

use http::{HeaderMap, Method, header};

use crate::metrics::Call;

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Call(Call),
    /// Nothing is there.
    NoSuchPath,
    /// Something is there, for another method.
    NoSuchMethod,
}

/// Every route of the stable service.
const ROUTES: [(&str, Method, Call); 9] = [
    ("/ready", Method::POST, Call::Ready),
    ("/allocate", Method::POST, Call::Allocate),
    ("/shutdown", Method::POST, Call::Shutdown),
    ("/health", Method::POST, Call::Health),
    ("/gameserver", Method::GET, Call::GetGameServer),
    ("/watch/gameserver", Method::GET, Call::WatchGameServer),
    ("/metadata/label", Method::PUT, Call::SetLabel),
    ("/metadata/annotation", Method::PUT, Call::SetAnnotation),
    ("/reserve", Method::POST, Call::Reserve),
];

const METHOD_OVERRIDE: &str = "x-http-method-override";

/// The path whose requests must have a body, whatever their method.
pub(super) const HEALTH: &str = "/health";

/// The call that a request means. A form may be posted to a path that is only read from, and may name another method.
pub(super) fn find(method: &Method, path: &str, headers: &HeaderMap) -> Found {
    let is_form = *method == Method::POST && is_form(headers);
    let named = headers.get(METHOD_OVERRIDE).and_then(|named| Method::from_bytes(named.as_bytes()).ok());
    let method = named.filter(|_| is_form).unwrap_or_else(|| method.clone());
    match ROUTES.iter().find(|(known, ..)| *known == path) {
        None => Found::NoSuchPath,
        Some((_, wanted, call)) if *wanted == method => Found::Call(*call),
        Some((_, Method::GET, call)) if is_form && method == Method::POST => Found::Call(*call),
        Some(_) => Found::NoSuchMethod,
    }
}

/// The method that a query asks for in place of the GET of an upgrade.
pub(super) fn method_in_query(query: &str) -> Option<Method> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix("method="))
        .and_then(|method| Method::from_bytes(method.to_ascii_uppercase().as_bytes()).ok())
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let form: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded")];
        let put_form = &[form[0], (METHOD_OVERRIDE, "PUT")];
        let json_override: &[(&str, &str)] =
            &[("content-type", "application/json"), (METHOD_OVERRIDE, "GET")];
        let cases = [
            (Method::POST, "/ready", &[][..], Found::Call(Call::Ready)),
            (Method::GET, "/ready", &[], Found::NoSuchMethod),
            (Method::OPTIONS, "/ready", &[], Found::NoSuchMethod),
            (Method::HEAD, "/gameserver", &[], Found::NoSuchMethod),
            (Method::GET, "/nothing", &[], Found::NoSuchPath),
            (Method::GET, "/", &[], Found::NoSuchPath),
            (Method::GET, "/gameserver/", &[], Found::NoSuchPath),
            (Method::GET, "/watch/gameserver", &[], Found::Call(Call::WatchGameServer)),
            (Method::PUT, "/metadata/label", &[], Found::Call(Call::SetLabel)),
            (Method::POST, "/metadata/label", &[], Found::NoSuchMethod),
            (Method::POST, "/gameserver", &[], Found::NoSuchMethod),
            (Method::POST, "/gameserver", form, Found::Call(Call::GetGameServer)),
            (Method::POST, "/metadata/label", form, Found::NoSuchMethod),
            (Method::POST, "/metadata/label", put_form, Found::Call(Call::SetLabel)),
            (Method::POST, "/gameserver", json_override, Found::NoSuchMethod),
        ];
        for (method, path, given, found) in cases {
            let headers = given
                .iter()
                .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
                .collect();
            assert_eq!(find(&method, path, &headers), found, "{method} {path} {given:?}");
        }
    }

    #[test]
    fn an_upgrade_may_name_a_method() {
        assert_eq!(method_in_query("method=POST"), Some(Method::POST));
        assert_eq!(method_in_query("a=b&method=put"), Some(Method::PUT));
        assert_eq!(method_in_query("methods=POST"), None);
    }
}
