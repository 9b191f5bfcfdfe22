package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Timeout bounds one call.
const Timeout = 15 * time.Second

// Target is a place that events are sent to.
type Target struct {
	Name string // for people and metrics; no secret is in it

	id       string // in the state file
	scheme   string
	url      string // without the settings of this package
	user     *url.Userinfo
	key      []byte // of the HMAC; nil = none
	severity string // Error = failures and what ends them; "" = all
	name     string // pattern of the objects; "" = all
}

// Settings of a target in the query of its URL, which are not sent.
const (
	paramSeverity = "limpet-severity"
	paramName     = "limpet-name"
)

// ParseTarget parses --notify: https://HOST/PATH. key signs what is sent; nil = nothing is signed. insecure allows plain
// http to other hosts than this one. Errors do not repeat the text, which may hold a secret.
func ParseTarget(text string, key []byte, insecure bool) (*Target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it is no URL")
	}
	t := &Target{scheme: u.Scheme, key: key, user: u.User}
	if t.scheme != "https" && t.scheme != "http" || u.Host == "" {
		return nil, errors.New("it has to be https://HOST/PATH")
	}
	if u.Scheme == "http" && !insecure && !isLoopback(u.Hostname()) {
		return nil, errors.New("plain http goes to this host only")
	}
	q := u.Query()
	if t.severity, t.name = q.Get(paramSeverity), q.Get(paramName); t.severity != "" && t.severity != Error && t.severity != Info {
		return nil, fmt.Errorf("%s has to be %s or %s", paramSeverity, Info, Error)
	}
	if _, err := path.Match(t.name, ""); err != nil {
		return nil, fmt.Errorf("%s is no pattern such as default/site-*", paramName)
	}
	if q.Has(paramSeverity) || q.Has(paramName) {
		q.Del(paramSeverity)
		q.Del(paramName)
		u.RawQuery = q.Encode()
	}
	host, scheme := u.Host, u.Scheme
	u.User, u.Fragment = nil, ""
	t.url = u.String()
	sum := sha256.Sum256([]byte(scheme + " " + t.url))
	t.id = hex.EncodeToString(sum[:6])
	t.Name = scheme + "://" + host + "#" + t.id[:6]
	return t, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// wants reports whether the target takes an event.
func (t *Target) wants(e *Event) bool {
	full := e.Namespace + "/" + e.Name
	if !strings.Contains(t.name, "/") {
		full = e.Name
	}
	match, _ := path.Match(t.name, full) // the pattern was checked
	return (match || t.name == "") && (t.severity != Error || e.Severity == Error || len(e.Recovered) > 0)
}

// send sends an event.
func (t *Target) send(ctx context.Context, client *netx.Client, e *Event) error {
	body, err := json.Marshal(payloadOf(e))
	if err != nil {
		return err
	}
	header := map[string]string{"Content-Type": "application/json", "gotk-component": component, "Idempotency-Key": e.ID}
	if t.key != nil {
		mac := hmac.New(sha256.New, t.key)
		mac.Write(body)
		header["X-Signature"] = "sha256=" + hex.EncodeToString(mac.Sum(nil))
	}
	return t.post(ctx, client, header, body)
}

// post makes one call. The error holds nothing of the URL but its host.
func (t *Target) post(ctx context.Context, client *netx.Client, header map[string]string, body []byte) error {
	call := netx.Call{Op: "notify " + t.Name, Method: http.MethodPost, URL: t.url, Header: header, Body: body, Unread: true,
		Open: true, Trust: (*auth.Credentials)(nil)}
	if u, err := url.Parse(t.url); err == nil {
		call.Secrets = []string{t.url, u.EscapedPath(), u.RawQuery}
	}
	if t.user != nil {
		password, _ := t.user.Password()
		req := http.Request{Header: http.Header{}}
		req.SetBasicAuth(t.user.Username(), password)
		header["Authorization"] = req.Header.Get("Authorization")
		call.Secrets = append(call.Secrets, password, header["Authorization"])
	}
	_, err := client.Do(ctx, call)
	if e, ok := errors.AsType[*netx.Error](err); ok {
		e.Endpoint = "" // its path may be a secret
	}
	return err
}

const component = "limpet"

// payload is an event as Flux sends it.
type payload struct {
	InvolvedObject struct {
		Kind            string `json:"kind,omitempty"`
		Namespace       string `json:"namespace,omitempty"`
		Name            string `json:"name,omitempty"`
		UID             string `json:"uid,omitempty"`
		APIVersion      string `json:"apiVersion,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"involvedObject"`
	Severity            string            `json:"severity"`
	Timestamp           string            `json:"timestamp"`
	Message             string            `json:"message"`
	Reason              string            `json:"reason"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	ReportingController string            `json:"reportingController"`
	ReportingInstance   string            `json:"reportingInstance,omitempty"`
}

func payloadOf(e *Event) *payload {
	p := &payload{Severity: e.Severity, Timestamp: e.Time.UTC().Format(time.RFC3339), Message: e.Message, Reason: e.Reason,
		Metadata: map[string]string{}, ReportingController: component}
	p.ReportingInstance, _ = os.Hostname()
	o := &p.InvolvedObject
	o.Kind, o.Namespace, o.Name, o.UID, o.APIVersion, o.ResourceVersion = e.Kind, e.Namespace, e.Name, e.UID, e.APIVersion, e.ResourceVersion
	maps.Copy(p.Metadata, e.Metadata)
	p.Metadata["limpet/event-id"] = e.ID
	if len(e.Recovered) > 0 {
		p.Metadata["limpet/recovered"] = strings.Join(e.Recovered, ",")
	}
	return p
}
