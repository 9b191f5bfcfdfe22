package kube

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// client-go reads an answer three times to learn what it holds, and an event of a watch four times,
// before the time that makes the object. The kinds of these APIs are maps of JSON whatever they
// hold, so once is enough.

// decodesOnce is the serializer of the dynamic client whose decoders read JSON once.
type decodesOnce struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (d decodesOnce) SupportedMediaTypes() (all []runtime.SerializerInfo) {
	for _, info := range d.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			info.Serializer = objectDecoder{info.Serializer}
			stream := *info.StreamSerializer
			stream.Serializer = eventDecoder{stream.Serializer}
			info.StreamSerializer = &stream
		}
		all = append(all, info)
	}
	return all
}

// objectDecoder decodes objects. Kinds of the API machinery itself have types, and what is no object
// gets the error of client-go.
type objectDecoder struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (d objectDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (
	runtime.Object, *schema.GroupVersionKind, error,
) {
	out, wanted := into.(*unstructured.Unstructured)
	if !wanted && into != nil || defaults != nil {
		return d.Serializer.Decode(data, defaults, into)
	}
	var object map[string]any
	if utiljson.Unmarshal(data, &object) != nil {
		return d.Serializer.Decode(data, defaults, into)
	}
	if out == nil {
		out = &unstructured.Unstructured{}
	}
	_, list := object["items"]
	version, _ := object["apiVersion"].(string)
	if kind, _ := object["kind"].(string); kind == "" || list || version == "" || version == metav1.Unversioned.Version {
		return d.Serializer.Decode(data, defaults, into)
	}
	out.Object = object
	kind := out.GroupVersionKind()
	return out, &kind, nil
}

// eventDecoder decodes the envelope of an event of a watch.
type eventDecoder struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (d eventDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (
	runtime.Object, *schema.GroupVersionKind, error,
) {
	event, is := into.(*metav1.WatchEvent)
	if !is {
		return d.Serializer.Decode(data, defaults, into)
	}
	return event, defaults, utiljson.Unmarshal(data, event)
}
