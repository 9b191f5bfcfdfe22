package apiserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func protoField(out []byte, number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(out, number, protowire.BytesType), value)
}

func protoNumber(out []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(out, number, protowire.VarintType), value)
}

func envelope(t testing.TB, apiVersion, kind string, raw []byte) string {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	data, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return protobufMagic + string(data)
}

func protoMeta(t testing.TB, meta metav1.ObjectMeta) []byte {
	data, err := meta.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return protoField(nil, 1, string(data))
}

// Typed clients create, replace and delete objects of Kubernetes' own kinds by protobuf; answers
// are JSON.
func TestProtobufBodies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	send := func(method, path, body string) (int, string) {
		w := s.send(method, path, body, func(r *http.Request) {
			r.Header.Set("Content-Type", mediaProtobuf)
			r.Header.Set("Accept", mediaProtobuf+", */*")
		})
		return w.Code, w.Body.String()
	}
	secret := protoMeta(t, metav1.ObjectMeta{Name: "s", Labels: map[string]string{"a": "b"}})
	for key, value := range map[string]string{"bin": "\xff\x00", "none": ""} {
		secret = protoField(secret, 2, string(protoField(protoField(nil, 1, key), 2, value)))
	}
	secret = protoField(secret, 4, string(protoField(protoField(nil, 1, "text"), 2, "plain")))
	secret = protoNumber(protoField(protoField(secret, 3, ""), 99, "of a later version"), 5, 0)
	const secrets = "/api/v1/namespaces/default/secrets"
	if code, text := send("POST", secrets, envelope(t, "v1", "Secret", secret)); code != http.StatusCreated {
		t.Fatal(code, text)
	}
	o := s.must("GET", secrets+"/s", "")
	if got := compact(t, o["data"]); got != `{"bin":"/wA=","none":"","text":"cGxhaW4="}` || o["type"] != "Opaque" || o["immutable"] != false ||
		at(o, "metadata", "labels", "a") != "b" {
		t.Errorf("%s", compact(t, o))
	}
	now := metav1.NewMicroTime(time.Unix(1700000000, 123456000))
	micro, _ := now.Marshal()
	lease := protoField(nil, 1, "holder")
	lease = protoField(protoNumber(protoNumber(lease, 2, 15), 5, 2), 4, string(micro))
	lease = protoField(protoMeta(t, metav1.ObjectMeta{Name: "l"}), 2, string(lease))
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	if code, text := send("POST", leases, envelope(t, "coordination.k8s.io/v1", "Lease", lease)); code != http.StatusCreated {
		t.Fatal(code, text)
	}
	if got, want := compact(t, s.must("GET", leases+"/l", "")["spec"]),
		`{"holderIdentity":"holder","leaseDurationSeconds":15,"leaseTransitions":2,"renewTime":"2023-11-14T22:13:20.123456Z"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	event := protoField(protoMeta(t, metav1.ObjectMeta{Name: "e"}), 2, string(protoField(protoField(nil, 1, "Repository"), 3, "r")))
	event = protoField(protoNumber(protoField(event, 3, "Because"), 8, 3), 7, "")
	if code, text := send("POST", "/api/v1/namespaces/default/events", envelope(t, "v1", "Event", event)); code != http.StatusCreated ||
		!strings.Contains(text, `"involvedObject":{"kind":"Repository","name":"r"}`) || !strings.Contains(text, `"count":3`) {
		t.Error(code, text)
	}

	uid := types.UID(at(o, "metadata", "uid").(string))
	for _, c := range []struct {
		id   types.UID
		want int
	}{{"another", http.StatusConflict}, {uid, http.StatusOK}} {
		d := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.id}}
		raw, _ := d.Marshal()
		if code, text := send("DELETE", secrets+"/s", envelope(t, "v1", "DeleteOptions", raw)); code != c.want {
			t.Error(code, text)
		}
	}
	for name, body := range map[string]string{"no envelope": "x", "cut": envelope(t, "v1", "Secret", secret[:len(secret)-3]),
		"a number for a text": envelope(t, "v1", "Secret", protowire.AppendFixed32(protowire.AppendTag(nil, 3, protowire.Fixed32Type), 1))} {
		if code, text := send("POST", secrets, body); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if code, _ := send("POST", folderPath, envelope(t, "folder.grafana.app/v1", "Folder", nil)); code != http.StatusUnsupportedMediaType {
		t.Errorf("a kind without messages: %d", code)
	}
}

// Objects of Kubernetes' own kinds need neither kind nor apiVersion in the body.
func TestKindOfThePath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"}}`)
	s.must("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"kind":"","apiVersion":"","metadata":{"name":"a"}}`)
	if code, _ := s.call("POST", folderPath, `{"metadata":{"name":"a"}}`); code != http.StatusBadRequest {
		t.Errorf("a folder without kind: %d", code)
	}
	if code, _ := s.call("POST", "/api/v1/namespaces/default/secrets", `{"kind":"Event","metadata":{"name":"b"}}`); code < 400 {
		t.Errorf("an Event as a Secret: %d", code)
	}
}

func FuzzProtobuf(f *testing.F) {
	f.Add(protoField(protoMeta(f, metav1.ObjectMeta{Name: "a"}), 2, "\x0a\x01a\x12\x01b"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for kind := range messages {
			_, _ = decodeMessage(messages[kind], raw)
		}
	})
}
