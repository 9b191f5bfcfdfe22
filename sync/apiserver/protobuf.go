package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// "kubectl create secret" speaks protobuf and nothing else. It is the command
// that people know for a token, so a Secret, alone of all kinds, is taken in
// that form too; all answers are JSON, which kubectl accepts.

const mediaProtobuf = "application/vnd.kubernetes.protobuf"

// protobufMagic begins every protobuf body of Kubernetes.
var protobufMagic = []byte("k8s\x00")

func isProtobuf(req *http.Request) bool {
	name, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return err == nil && name == mediaProtobuf
}

// Field numbers of v1.Secret. Source: k8s.io/api/core/v1/generated.proto.
const (
	secretMetadata   = 1
	secretDataField  = 2
	secretType       = 3
	secretStringData = 4
	secretImmutable  = 5
)

// wireSecret is a core Secret as JSON writes it.
type wireSecret struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Type       string            `json:"type,omitempty"`
	Data       map[string][]byte `json:"data,omitempty"`
	StringData map[string]string `json:"stringData,omitempty"`
	Immutable  *bool             `json:"immutable,omitempty"`
}

// secretFromProtobuf turns a protobuf body with a Secret into JSON. It returns
// 400 status errors, which never repeat the body.
func secretFromProtobuf(body []byte) ([]byte, error) {
	raw, ok := bytes.CutPrefix(body, protobufMagic)
	var envelope runtime.Unknown
	if !ok || envelope.Unmarshal(raw) != nil {
		return nil, badRequest("the body is not a Kubernetes protobuf message")
	}
	secret := wireSecret{Kind: envelope.Kind, APIVersion: envelope.APIVersion, Data: map[string][]byte{}, StringData: map[string]string{}}
	err := eachField(envelope.Raw, func(number protowire.Number, value []byte, n uint64) error {
		switch number {
		case secretMetadata:
			return secret.Metadata.Unmarshal(value)
		case secretDataField, secretStringData:
			key, data, err := mapEntry(value)
			if number == secretDataField {
				secret.Data[key] = data
			} else {
				secret.StringData[key] = string(data)
			}
			return err
		case secretType:
			secret.Type = string(value)
		case secretImmutable:
			immutable := n != 0
			secret.Immutable = &immutable
		}
		return nil
	})
	if err != nil {
		return nil, badRequest("the Secret in the protobuf message cannot be read")
	}
	out, err := json.Marshal(secret)
	if err != nil {
		return nil, fmt.Errorf("write secret as JSON: %w", err)
	}
	return out, nil
}

// mapEntry reads one entry of a map with text keys.
func mapEntry(data []byte) (key string, value []byte, err error) {
	err = eachField(data, func(number protowire.Number, v []byte, _ uint64) error {
		switch number {
		case 1:
			key = string(v)
		case 2:
			value = v
		}
		return nil
	})
	return key, value, err
}

// eachField calls fn with each field of a message: with its bytes, or with its
// number when it is a varint. Fields of other forms are passed over.
func eachField(data []byte, fn func(number protowire.Number, value []byte, n uint64) error) error {
	for len(data) > 0 {
		number, form, size := protowire.ConsumeTag(data)
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		var value []byte
		var n uint64
		switch form {
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(data)
		default:
			size = protowire.ConsumeFieldValue(number, form, data)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		if form == protowire.BytesType || form == protowire.VarintType {
			if err := fn(number, value, n); err != nil {
				return err
			}
		}
	}
	return nil
}
