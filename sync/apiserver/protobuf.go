package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Typed clients, such as controller-runtime's, send objects of the kinds that Kubernetes itself has
// as protobuf, and nothing makes them send JSON. They accept JSON as the answer. The types of
// k8s.io/api would double the size of the program, so the messages are read by a table.

const (
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
	// protobufMagic begins the envelope. Source: the serializer of the API machinery.
	protobufMagic = "k8s\x00"
)

// messages are the fields of messages in the order of their numbers: NAME of a text, or NAME:TYPE.
// A message with a key is an entry of a map. Source: generated.proto of core/v1 and coordination/v1
// of k8s.io/api.
var messages = map[string][]string{
	"Secret": strings.Fields("metadata:meta data:bytes type stringData:texts immutable:bool"),
	"Event": strings.Fields(`metadata:meta involvedObject:reference reason message source:source firstTimestamp:time
		lastTimestamp:time count:number type eventTime:micro series:series action related:reference
		reportingComponent reportingInstance`),
	"Lease": strings.Fields("metadata:meta spec:lease"),
	"lease": strings.Fields(`holderIdentity leaseDurationSeconds:number acquireTime:micro renewTime:micro
		leaseTransitions:number strategy preferredHolder`),
	"reference": strings.Fields("kind namespace name uid apiVersion resourceVersion fieldPath"),
	"source":    strings.Fields("component host"),
	"series":    strings.Fields("count:number lastObservedTime:micro"),
	"bytes":     strings.Fields("key value:binary"),
	"texts":     strings.Fields("key value"),
}

var errProtobuf = errors.New("invalid protobuf message")

// protobufJSON returns the object of a kind, or the DeleteOptions, in an envelope as JSON.
func protobufJSON(kind string, body []byte) ([]byte, error) {
	var envelope runtime.Unknown
	data, ok := bytes.CutPrefix(body, []byte(protobufMagic))
	if !ok || envelope.Unmarshal(data) != nil {
		return nil, errProtobuf
	}
	if envelope.Kind == "DeleteOptions" {
		var o metav1.DeleteOptions
		if o.Unmarshal(envelope.Raw) != nil {
			return nil, errProtobuf
		}
		return json.Marshal(o)
	}
	object, err := decodeMessage(messages[kind], envelope.Raw)
	if err != nil {
		return nil, err
	}
	object["apiVersion"], object["kind"] = envelope.APIVersion, envelope.Kind
	return json.Marshal(object)
}

// decodeMessage reads a message; unknown fields are skipped.
func decodeMessage(fields []string, data []byte) (map[string]any, error) {
	out := map[string]any{}
	for len(data) > 0 {
		number, wire, tag := protowire.ConsumeTag(data)
		size := protowire.ConsumeFieldValue(number, wire, data[max(tag, 0):])
		if tag < 0 || size < 0 {
			return nil, errProtobuf
		}
		value := data[tag : tag+size]
		data = data[tag+size:]
		if int(number) > len(fields) {
			continue
		}
		name, kind, _ := strings.Cut(fields[number-1], ":")
		decoded, err := decodeValue(kind, wire, value)
		if err != nil {
			return nil, err
		}
		if kind == "bytes" || kind == "texts" {
			entry, entries := asMap(decoded), asMap(out[name])
			if entries == nil {
				entries = map[string]any{}
			}
			entries[fmt.Sprint(entry["key"])] = entry["value"]
			decoded = entries
		}
		out[name] = decoded
	}
	return out, nil
}

func decodeValue(kind string, wire protowire.Type, data []byte) (any, error) {
	if wire == protowire.VarintType {
		number, _ := protowire.ConsumeVarint(data)
		if kind == "bool" {
			return number != 0, nil
		}
		return int32(number), nil // as all numbers of these messages
	}
	value, n := protowire.ConsumeBytes(data)
	if wire != protowire.BytesType || n < 0 {
		return nil, errProtobuf
	}
	var known interface{ Unmarshal([]byte) error }
	switch kind {
	case "":
		return string(value), nil
	case "binary":
		return append([]byte{}, value...), nil // base64 in JSON, "" for none
	case "meta":
		known = new(metav1.ObjectMeta)
	case "time":
		known = new(metav1.Time)
	case "micro":
		known = new(metav1.MicroTime)
	default:
		return decodeMessage(messages[kind], value)
	}
	return known, known.Unmarshal(value)
}
