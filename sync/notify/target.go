package notify

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/program"
	"limpet/sync/text"
)

// Timeout bounds one call.
const Timeout = 15 * time.Second

// Target is a place that events are sent to.
type Target struct {
	Name string // for people and metrics; no secret is in it

	id       string // in the state file
	form     form
	url      string // without the settings of this package
	user     *url.Userinfo
	key      []byte // of the HMAC; nil = none
	argv     []string
	client   *kube.Client // of the target that records Kubernetes Events
	loki     *lokiHeader  // of the target that gets the history
	refused  sync.Once
	severity string // Error = failures and what ends them; "" = all
	name     string // pattern of the objects; "" = all
}

// Settings of a target in the query of its URL. They are not sent.
const (
	paramSeverity = "limpet-severity"
	paramName     = "limpet-name"
)

var errTarget = errors.New("expected https://HOST/PATH, slack+https://HOST/PATH, alertmanager+https://HOST or exec:/PROGRAM")

// ParseTargets parses the values of --notify. key signs what webhooks get; nil = nothing is signed.
// insecure allows plain http to other hosts than this one. Errors do not repeat a value, which may
// hold a secret.
func ParseTargets(values []string, key []byte, insecure bool) (out []*Target, err error) {
	known := map[string]bool{}
	for i, value := range values {
		t, err := parseTarget(value, insecure)
		if err == nil && known[t.id] {
			err = fmt.Errorf("%s is there twice", t.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("value %d: %w", i+1, err)
		}
		if known[t.id] = true; t.form == webhook {
			t.key = key
		}
		out = append(out, t)
	}
	return out, nil
}

// ParseHeartbeat parses --heartbeat: a URL that is called as it is.
func ParseHeartbeat(value string, insecure bool) (*Target, error) {
	t, err := parseTarget(value, insecure)
	if err != nil || t.form != webhook {
		return nil, cmp.Or(err, errors.New("expected https://HOST/PATH"))
	}
	return t, nil
}

func parseTarget(value string, insecure bool) (*Target, error) {
	t := &Target{}
	host, query := "", ""
	if program, ok := strings.CutPrefix(value, "exec:"); ok {
		program, query, _ = strings.Cut(program, "?")
		if t.argv = strings.Fields(program); len(t.argv) == 0 || !filepath.IsAbs(t.argv[0]) {
			return nil, errTarget
		}
		t.url, host = "exec:"+strings.Join(t.argv, " "), t.argv[0]
	} else {
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			return nil, errTarget
		}
		kind, scheme, found := strings.Cut(u.Scheme, "+")
		if !found {
			kind, scheme = string(webhook), u.Scheme
		}
		t.form = form(kind)
		switch {
		case scheme != "https" && scheme != "http" || payloads[t.form] == nil || found && t.form == webhook:
			return nil, errTarget
		case scheme == "http" && !insecure && !netx.Loopback(u.Hostname()):
			return nil, errors.New("plain http goes to this host only; use https")
		case t.form == alertmanager && strings.Trim(u.Path, "/") == "":
			u.Path = "/api/v2/alerts"
		}
		host = u.Scheme + "://" + u.Host
		query, t.user = u.RawQuery, u.User
		u.Scheme, u.User, u.Fragment, u.RawQuery = scheme, nil, "", withoutSettings(query)
		t.url = u.String()
		registerSecrets(u, t.user)
	}
	settings, err := url.ParseQuery(query)
	if t.severity, t.name = settings.Get(paramSeverity), settings.Get(paramName); err != nil && t.form == "" ||
		t.severity != "" && t.severity != Error && t.severity != Info {
		return nil, fmt.Errorf("expected %s=%s or %s=%s", paramSeverity, Info, paramSeverity, Error)
	}
	if _, err := path.Match(t.name, ""); err != nil {
		return nil, fmt.Errorf("%s is no pattern such as default/site-*", paramName)
	}
	sum := sha256.Sum256([]byte(string(t.form) + " " + t.url))
	t.id = hex.EncodeToString(sum[:6])
	t.Name = host + "#" + t.id[:6]
	if t.form == "" {
		t.Name = "exec:" + t.Name
	}
	return t, nil
}

// withoutSettings returns a query without those of this package, in its order.
func withoutSettings(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(part, "="); name != paramSeverity && name != paramName {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// shortestSecret is the length from which the path of a webhook may be its secret, as that of
// Slack.
const shortestSecret = 20

// registerSecrets keeps what lets anyone send to a target out of logs and screens.
func registerSecrets(u *url.URL, user *url.Userinfo) {
	if p := strings.Trim(u.EscapedPath(), "/"); len(p) >= shortestSecret {
		text.RegisterSecret([]byte(p))
	}
	for _, values := range u.Query() {
		text.RegisterSecret([]byte(values[0]))
	}
	if password, ok := user.Password(); ok {
		text.RegisterSecret([]byte(password))
	}
}

// wants reports whether the target takes an event.
func (t *Target) wants(e *Event) bool {
	full := e.Namespace + "/" + e.Name
	if !strings.Contains(t.name, "/") {
		full = e.Name
	}
	match, _ := path.Match(t.name, full) // the pattern was checked
	pair := e.Severity == Error || len(e.Recovered) > 0
	return t.loki == nil && (match || t.name == "") && (pair || t.severity != Error && t.form != alertmanager)
}

// send sends an event once. The error names the host of a URL at most.
func (t *Target) send(ctx context.Context, client *netx.Client, log *slog.Logger, e *Event) error {
	switch {
	case t.client != nil:
		return t.record(ctx, log, e)
	case t.loki != nil:
		return t.push(ctx, client, e)
	}
	body, err := json.Marshal(payloads[t.form](e))
	if err != nil {
		return err
	}
	if t.argv != nil {
		return t.exec(ctx, log, body)
	}
	header := map[string]string{"Content-Type": "application/json", "Idempotency-Key": e.ID}
	if t.form == webhook {
		header["gotk-component"] = component
	}
	if t.key != nil {
		header["X-Signature"] = sign(t.key, body)
	}
	return t.call(ctx, client, http.MethodPost, header, body)
}

func sign(key, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// call makes one call. That it is answered counts, not what the answer says; but a page is no answer
// of Loki.
func (t *Target) call(ctx context.Context, client *netx.Client, method string, header map[string]string, body []byte) error {
	if t.user != nil {
		password, _ := t.user.Password()
		req := http.Request{Header: http.Header{}}
		req.SetBasicAuth(t.user.Username(), password)
		header["Authorization"] = req.Header.Get("Authorization")
	}
	call := netx.Call{Op: "deliver", Method: method, URL: t.url, Header: header, Body: body,
		Unread: t.loki == nil, Plain: t.loki != nil,
		Trust: (*auth.Credentials)(nil), Secrets: []string{t.url, header["Authorization"]}}
	_, err := client.Do(ctx, call)
	if e, ok := errors.AsType[*netx.Error](err); ok {
		e.Endpoint = "" // the name of the target says as much as may be said
	}
	return err
}

const (
	execTimeout = 30 * time.Second
	maxTail     = 2 << 10 // bytes of the output that are logged
)

// exec runs the program with the event on its standard input.
func (t *Target) exec(ctx context.Context, log *slog.Logger, event []byte) error {
	said, err := program.Command{Argv: t.argv, Dir: "/", Input: event, Timeout: execTimeout, Most: maxTail}.Run(ctx)
	if err == nil && said != "" {
		log.Info("notification delivered", "target", t.Name, "output", said)
	}
	return err
}
