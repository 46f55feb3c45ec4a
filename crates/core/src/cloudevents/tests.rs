use super::*;
use crate::envelope::{Envelope, Payload};

const MINIMAL: &str = r#""specversion":"1.0","id":"m-1","source":"//shop","type":"order.accepted""#;

fn structured(members: &str) -> Result<Envelope, EventFault> {
    from_structured(format!("{{{members}}}").as_bytes())
}

fn with(members: &str) -> Result<Envelope, EventFault> {
    structured(&format!("{MINIMAL},{members}"))
}

fn binary(extra: &[(&str, &[u8])], body: &[u8]) -> Result<Envelope, EventFault> {
    let minimal: [(&str, &[u8]); 4] = [
        ("CE-SpecVersion", b"1.0"),
        ("ce-id", b"m-1"),
        ("ce-source", b"//shop"),
        ("ce-type", b"order.accepted"),
    ];
    from_binary(minimal.into_iter().chain(extra.iter().copied()), body)
}

fn json(text: &str) -> Payload {
    Payload::Json(text.into())
}

#[test]
fn the_mode_is_the_content_types_word() {
    let of = |content_type, has_header| Mode::of(content_type, has_header);
    assert_eq!(
        of(Some("application/cloudevents+json; charset=utf-8"), false),
        Some(Mode::Structured)
    );
    assert_eq!(
        of(Some("Application/CloudEvents-Batch+JSON"), true),
        Some(Mode::Batch)
    );
    assert_eq!(of(Some("application/cloudevents+avro"), true), None);
    assert_eq!(of(Some("application/json"), true), Some(Mode::Binary));
    assert_eq!(of(None, true), Some(Mode::Binary));
    assert_eq!(of(Some("application/json"), false), None);
}

#[test]
fn a_minimal_event_has_defaults() {
    let envelope = structured(MINIMAL).unwrap();
    let expected = Envelope {
        source: Some("//shop".into()),
        ..Envelope::new(
            "m-1",
            "order",
            "m-1",
            "order.accepted",
            Payload::Binary(Box::default()),
        )
    };
    assert_eq!(envelope, expected);
    assert_eq!(binary(&[], b"").unwrap(), expected);
}

#[test]
fn every_field_has_its_name_on_the_wire() {
    let text = format!(
        r#"{{{MINIMAL},"subject":"ord-731","aggregatetype":"purchase","operationid":"checkout-284",
        "partitionkey":"eu","sequence":"00000000000000000007","schemaversion":3,
        "time":"2026-03-01T12:00:00Z","expirytime":"2026-03-02T12:00:00Z","urgent":true,
        "dataref":"https://x/y","absent":null,"data":{{"a":1}}}}"#
    );
    let envelope = from_structured(text.as_bytes()).unwrap();
    assert_eq!(envelope.aggregate_id, "ord-731");
    assert_eq!(envelope.aggregate_type, "purchase");
    assert_eq!(envelope.operation(), "checkout-284");
    assert_eq!(envelope.key(), "eu");
    assert_eq!(envelope.aggregate_version, Some(7));
    assert_eq!(envelope.schema_version, Some(3));
    assert_eq!(
        envelope.occurred_at,
        Some("2026-03-01T12:00:00Z".parse().unwrap())
    );
    assert_eq!(
        envelope.expires_at,
        Some("2026-03-02T12:00:00Z".parse().unwrap())
    );
    let names: Vec<_> = envelope
        .attributes
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    assert_eq!(names, [("dataref", "https://x/y"), ("urgent", "true")]);
    let written = to_structured(&envelope, Some("2026-03-01T12:00:01Z".parse().unwrap())).unwrap();
    for part in [
        r#""sequence":"00000000000000000007""#,
        r#""schemaversion":3"#,
        r#""recordedtime":"2026-03-01T12:00:01Z""#,
        r#""datacontenttype":"application/json","data":{"a":1}}"#,
    ] {
        assert!(written.contains(part), "{part} is not in {written}");
    }
    assert_eq!(from_structured(written.as_bytes()).unwrap(), envelope);
}

#[test]
fn data_stay_byte_for_byte() {
    for text in [
        r#"{"b":1,"a":2,"b":3}"#,
        "9007199254740993",
        "1e400",
        "-0.10",
        r#""\u0000\ud800""#,
        "[ 1 ,\t2 ]",
        "null",
    ] {
        let envelope = with(&format!(r#""data": {text} "#)).unwrap();
        assert_eq!(envelope.payload, json(text));
        let envelope = binary(&[("content-type", b"application/json")], text.as_bytes()).unwrap();
        assert_eq!(envelope.payload, json(text));
        assert_eq!(to_binary(&envelope, None).unwrap().body, text.as_bytes());
    }
}

#[test]
fn the_content_type_decides_what_data_are() {
    let text = with(r#""datacontenttype":"text/plain","data":"a\u0000b""#).unwrap();
    assert_eq!(text.payload, Payload::Binary(b"a\0b".as_slice().into()));
    let bytes = with(r#""data_base64":"AP8=""#).unwrap();
    assert_eq!(bytes.payload, Payload::Binary([0, 255].into()));
    let wrapped = with(r#""datacontenttype":"application/json","data_base64":"WzFdCg==""#).unwrap();
    assert_eq!(wrapped.payload, json("[1]\n"));
    assert!(wrapped.attributes.is_empty());
    let vendor = with(r#""datacontenttype":"application/x+json","data":[1]"#).unwrap();
    assert_eq!(vendor.payload, json("[1]"));
    assert_eq!(vendor.attributes["datacontenttype"], "application/x+json");
}

#[test]
fn without_a_content_type_objects_and_arrays_are_json() {
    for text in ["{\"a\":1}", " [1]\n"] {
        assert_eq!(binary(&[], text.as_bytes()).unwrap().payload, json(text));
    }
    for bytes in [b"1".as_slice(), b"\"a\"", b"{", b"[\"\xff\"]", b"text"] {
        let payload = binary(&[], bytes).unwrap().payload;
        assert_eq!(payload, Payload::Binary(bytes.into()));
    }
}

#[test]
fn a_sequence_of_another_making_stays_an_attribute() {
    for sequence in [
        "01HZX3",
        "+7",
        "99999999999999999999",
        "000000000000000000007",
    ] {
        let envelope = with(&format!(r#""sequence":"{sequence}""#)).unwrap();
        assert_eq!(envelope.aggregate_version, None, "{sequence}");
        let written = to_structured(&envelope, None).unwrap();
        assert_eq!(
            from_structured(written.as_bytes()).unwrap().attributes["sequence"],
            sequence
        );
    }
    assert_eq!(
        with(r#""sequence":"7""#).unwrap().aggregate_version,
        Some(7)
    );
}

#[test]
fn faults_of_structured_events_are_placed() {
    use FaultKind as K;
    let deep = format!(r#""data":{}{}"#, "[".repeat(600), "]".repeat(600));
    let long = format!(r#""operationid":"{}""#, "x".repeat(513));
    let cases = [
        (r#""id":"again""#, K::Duplicate, "/id"),
        (r#""x":1,"x":1"#, K::Duplicate, "/x"),
        (r#""data":1,"data":1"#, K::Duplicate, "/data"),
        (r#""data":1,"data_base64":"AA==""#, K::Data, "/data_base64"),
        (r#""data_base64":"AA""#, K::Data, "/data_base64"),
        (
            r#""data_base64":"/w==","datacontenttype":"a/json""#,
            K::Encoding,
            "/data_base64",
        ),
        (r#""data":{},"datacontenttype":"a/b""#, K::Data, "/data"),
        (
            r#""datacontenttype":"json""#,
            K::BadValue,
            "/datacontenttype",
        ),
        (r#""data":{"a":}"#, K::Syntax, "/data"),
        (r#""tenant_id":"t""#, K::BadName, "/tenant_id"),
        (r#""a/b~":null"#, K::BadName, "/a~1b~0"),
        (r#""Data":1"#, K::BadName, "/Data"),
        (r#""x":1.5"#, K::BadValue, "/x"),
        (r#""x":4294967296"#, K::BadValue, "/x"),
        (r#""x":{}"#, K::BadValue, "/x"),
        (r#""x":"\ud800""#, K::BadValue, "/x"),
        (r#""x":"a\u0000""#, K::BadValue, "/x"),
        (r#""x":"\uffff""#, K::BadValue, "/x"),
        (r#""x":"\u0085""#, K::BadValue, "/x"),
        (r#""subject":"""#, K::Missing, "/subject"),
        (r#""time":"yesterday""#, K::BadValue, "/time"),
        (r#""time":"2026-13-01T00:00:00Z""#, K::BadValue, "/time"),
        (r#""schemaversion":"v2""#, K::BadValue, "/schemaversion"),
        (r#""dataref":"a b""#, K::BadValue, "/dataref"),
        (&deep, K::TooDeep, "/data"),
        (&long, K::TooLong, "/operationid"),
    ];
    for (members, kind, pointer) in cases {
        let fault = with(members).unwrap_err();
        assert_eq!(
            (fault.kind, fault.place.pointer()),
            (kind, Some(pointer)),
            "{members}: {fault}"
        );
    }
}

#[test]
fn required_attributes_are_required() {
    let missing = [
        (
            r#""id":"1","source":"s","type":"t""#,
            "/specversion",
            FaultKind::Missing,
        ),
        (
            r#""specversion":"0.3","id":"1","source":"s","type":"t""#,
            "/specversion",
            FaultKind::UnsupportedVersion,
        ),
        (
            r#""specversion":"1.0","source":"s","type":"t""#,
            "/id",
            FaultKind::Missing,
        ),
        (
            r#""specversion":"1.0","id":null,"source":"s","type":"t""#,
            "/id",
            FaultKind::Missing,
        ),
        (
            r#""specversion":"1.0","id":"1","source":"","type":"t""#,
            "/source",
            FaultKind::Missing,
        ),
        (
            r#""specversion":"1.0","id":"1","source":"s""#,
            "/type",
            FaultKind::Missing,
        ),
    ];
    for (members, pointer, kind) in missing {
        let fault = structured(members).unwrap_err();
        assert_eq!(
            (fault.place.pointer(), fault.kind),
            (Some(pointer), kind),
            "{members}"
        );
    }
}

#[test]
fn what_is_no_document_is_refused() {
    for (body, kind) in [
        (b"".as_slice(), FaultKind::Syntax),
        (b"[]", FaultKind::Syntax),
        (b"{\"a\":1} x", FaultKind::Syntax),
        (b"{\"a\":\"\0\"}", FaultKind::Syntax),
        (b"\xef\xbb\xbf{}", FaultKind::Syntax),
        (b"{\"a\":\"\xff\"}", FaultKind::Encoding),
    ] {
        assert_eq!(from_structured(body).unwrap_err().kind, kind, "{body:?}");
    }
}

#[test]
fn faults_of_headers_name_them() {
    use FaultKind as K;
    type Case<'a> = (&'a [(&'a str, &'a [u8])], &'a [u8], K, &'a str);
    let cases: [Case<'_>; 9] = [
        (&[("ce-id", b"2")], b"", K::Duplicate, "header ce-id"),
        (
            &[("ce-tenant-id", b"2")],
            b"",
            K::BadName,
            "header ce-tenant-id",
        ),
        (&[("ce-data", b"2")], b"", K::BadName, "header ce-data"),
        (
            &[("ce-datacontenttype", b"a/b")],
            b"",
            K::BadName,
            "header ce-datacontenttype",
        ),
        (&[("ce-x", b"50% off")], b"", K::Encoding, "header ce-x"),
        (&[("ce-x", b"%00")], b"", K::BadValue, "header ce-x"),
        (
            &[("content-type", b"\xff")],
            b"",
            K::Encoding,
            "header content-type",
        ),
        (&[("content-type", b"a/json")], b"{", K::Data, "the body"),
        (
            &[("content-type", b"a/json")],
            b"\"\xff\"",
            K::Encoding,
            "the body",
        ),
    ];
    for (headers, body, kind, place) in cases {
        let fault = binary(headers, body).unwrap_err();
        assert_eq!(
            (fault.kind, fault.place.to_string().as_str()),
            (kind, place),
            "{fault}"
        );
    }
}

#[test]
fn a_batch_places_faults_by_index() {
    assert_eq!(from_batch(b"[]").unwrap(), []);
    let good = format!("{{{MINIMAL}}}");
    let envelopes = from_batch(format!(" [{good}, {good}] ").as_bytes()).unwrap();
    assert_eq!(envelopes.len(), 2);
    let cases = [
        (
            format!("[{good},{{}}]"),
            "/1/specversion",
            Some(1),
            FaultKind::Missing,
        ),
        (format!("[{good},3]"), "/1", Some(1), FaultKind::Syntax),
        (
            format!("[{good},{{\"a\":]"),
            "/1",
            Some(1),
            FaultKind::Syntax,
        ),
        (good, "", None, FaultKind::Syntax),
    ];
    for (text, pointer, index, kind) in cases {
        let fault = from_batch(text.as_bytes()).unwrap_err();
        assert_eq!(fault.place.pointer(), Some(pointer), "{fault}");
        assert_eq!((fault.index, fault.kind), (index, kind), "{fault}");
    }
}

#[test]
fn what_cannot_travel_is_not_written() {
    let good = structured(MINIMAL).unwrap();
    let changed = |change: fn(&mut Envelope)| {
        let mut envelope = good.clone();
        change(&mut envelope);
        to_binary(&envelope, None).unwrap_err().kind
    };
    assert_eq!(changed(|e| e.source = None), FaultKind::Missing);
    assert_eq!(changed(|e| e.aggregate_id.clear()), FaultKind::Missing);
    assert_eq!(
        changed(|e| e.aggregate_version = Some(-1)),
        FaultKind::BadValue
    );
    assert_eq!(
        changed(|e| e.occurred_at = Some(crate::Timestamp::from_micros(i64::MAX))),
        FaultKind::BadValue
    );
    assert_eq!(
        changed(|e| drop(e.attributes.insert("tenant-id".into(), "t".into()))),
        FaultKind::BadName
    );
    assert_eq!(
        changed(|e| drop(e.attributes.insert("recordedtime".into(), "t".into()))),
        FaultKind::Duplicate
    );
    assert_eq!(
        changed(|e| drop(
            e.attributes
                .insert("datacontenttype".into(), "a/b\r\nx: y".into())
        )),
        FaultKind::BadValue
    );
    let mut liar = good.clone();
    liar.payload = json("1}, {");
    assert_eq!(
        to_structured(&liar, None).unwrap_err().kind,
        FaultKind::Data
    );
}

/// Accepted, it could be written to nobody.
#[test]
fn a_time_whose_offset_leads_before_the_year_0_is_refused() {
    let early = r#""time":"0000-01-01T00:00:00+01:00""#;
    let fault = with(early).unwrap_err();
    let expected = (FaultKind::BadValue, Some("/time"));
    assert_eq!((fault.kind, fault.place.pointer()), expected);
    let headers: [(&str, &[u8]); 1] = [("ce-expirytime", b"0000-01-01T00:00:00+00:01")];
    let fault = binary(&headers, b"").unwrap_err();
    assert_eq!(fault.place.to_string(), "header ce-expirytime");
    assert!(with(r#""time":"0000-01-01T01:00:00+01:00""#).is_ok());
}

/// Its place is shown on terminals.
#[test]
fn a_name_with_control_characters_is_shown_escaped() {
    let fault = with(r#""a\u001b[31m\n":1"#).unwrap_err();
    assert_eq!(fault.place.pointer(), Some("/a\u{1b}[31m\n"));
    assert_eq!(fault.place.to_string(), r"/a\u{1b}[31m\n");
    assert!(!fault.to_string().contains(char::is_control), "{fault}");
}

#[test]
fn a_foreign_recordedtime_is_dropped() {
    let envelope = with(r#""recordedtime":"1999-01-01T00:00:00Z""#).unwrap();
    assert!(!to_structured(&envelope, None).unwrap().contains("1999"));
}

#[test]
fn debug_withholds_values_and_data() {
    let envelope = with(r#""subject":"card-4111","data":"4111""#).unwrap();
    let shown = format!("{:?}", to_binary(&envelope, None).unwrap());
    assert!(!shown.contains("4111"), "{shown}");
}
