//! The Query protocol: forms in, XML out.

use percent_encoding::percent_decode;

use super::value::Value;

const NAMESPACE: &str = "http://autoscaling.amazonaws.com/doc/2011-01-01/";

/// The pairs of a form.
pub(super) fn read(body: &[u8]) -> Vec<(String, String)> {
    let decode = |bytes: &[u8]| {
        let spaced = bytes.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect::<Vec<_>>();
        percent_decode(&spaced).decode_utf8_lossy().into_owned()
    };
    body.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            (decode(halves.next().unwrap_or_default()), decode(halves.next().unwrap_or_default()))
        })
        .collect()
}

/// The result of an action. Lists become `member` elements.
pub(super) fn write_result(action: &str, result: &Value, request_id: &str) -> Vec<u8> {
    let mut xml = format!("<{action}Response xmlns=\"{NAMESPACE}\"><{action}Result>");
    write(&mut xml, result);
    xml.push_str(&format!("</{action}Result>{}</{action}Response>", metadata(request_id)));
    xml.into_bytes()
}

/// A refusal.
pub(super) fn write_error(code: &str, message: &str, is_fault_of_sender: bool, request_id: &str) -> Vec<u8> {
    let kind = if is_fault_of_sender { "Sender" } else { "Receiver" };
    format!(
        "<ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>{kind}</Type><Code>{}</Code><Message>{}</Message></Error>\
         <RequestId>{request_id}</RequestId></ErrorResponse>",
        escaped(code),
        escaped(message)
    )
    .into_bytes()
}

fn metadata(request_id: &str) -> String {
    format!("<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>")
}

fn write(xml: &mut String, value: &Value) {
    match value {
        Value::Null => {}
        Value::Bool(value) => xml.push_str(&value.to_string()),
        Value::Integer(value) => xml.push_str(&value.to_string()),
        Value::Float(value) => xml.push_str(&value.to_string()),
        Value::Text(text) => xml.push_str(&escaped(text)),
        Value::Time(time) => xml.push_str(&format!("{time:.3}")),
        Value::List(items) => items.iter().for_each(|item| element(xml, "member", item)),
        Value::Map(members) => members.iter().for_each(|(name, value)| element(xml, name, value)),
    }
}

fn element(xml: &mut String, name: &str, value: &Value) {
    xml.push_str(&format!("<{name}>"));
    write(xml, value);
    xml.push_str(&format!("</{name}>"));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::value::Members;

    #[test]
    fn a_form_is_decoded() {
        let pairs = read(b"Action=Do&InstanceIds.member.1=i-1&Name=a%26b+c&Empty=&&");
        let expected = [("Action", "Do"), ("InstanceIds.member.1", "i-1"), ("Name", "a&b c"), ("Empty", "")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_result_is_elements_in_elements() {
        let time = jiff::Timestamp::from_millisecond(1_790_000_000_250).unwrap();
        let one = Members::new().with("Id", "a<b").with("Safe", Value::Bool(true)).with("At", time);
        let result = Members::new().with("Things", vec![one.into()]);
        let xml = String::from_utf8(write_result("Do", &result.into(), "r-1")).unwrap();
        assert_eq!(
            xml,
            "<DoResponse xmlns=\"http://autoscaling.amazonaws.com/doc/2011-01-01/\"><DoResult><Things><member>\
             <Id>a&lt;b</Id><Safe>true</Safe><At>2026-09-21T14:13:20.250Z</At></member></Things></DoResult>\
             <ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></DoResponse>"
        );
    }
}
