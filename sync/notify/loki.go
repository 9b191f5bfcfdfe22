package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/netx"
)

// Loki gets the records of the history, not events: a line for each job that has ended, as Grafana
// writes and reads it. A line that is sent again is the same with the same time, of which Loki keeps
// one.

// loki is the form of its target.
const loki form = "loki"

const pushPath = "/loki/api/v1/push"

// mostLine is how many bytes of a line Loki takes. Source: its default of max_line_size.
const mostLine = 256 << 10

// LokiOptions are the settings of Loki. Only URL is required.
type LokiOptions struct {
	URL          string // with or without the path of the push API
	User         string // "" with a PasswordFile = a bearer token is in it
	PasswordFile string // read again when it changes
	Tenant       string
	Insecure     bool // allows plain http to other hosts than this one
	Logger       *slog.Logger
}

// lokiHeader is what every push needs besides its line.
type lokiHeader struct {
	user, tenant string
	password     *kube.Reloaded[string] // nil = none
}

// NewLoki returns the target of the history. Errors do not repeat the URL, which may hold a secret.
func NewLoki(o LokiOptions) (*Target, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("expected https://HOST")
	case u.User != nil:
		return nil, errors.New("user and password are settings of their own")
	case u.Scheme == "http" && !o.Insecure && !netx.Loopback(u.Hostname()):
		return nil, errors.New("plain http goes to this host only; use https")
	case o.User != "" && o.PasswordFile == "":
		return nil, errors.New("the user needs a password")
	case strings.ContainsFunc(o.User+o.Tenant, unicode.IsControl) || strings.Contains(o.User, ":"):
		return nil, errors.New("user and tenant have no control characters, and a user has no colon")
	}
	if !strings.HasSuffix(u.Path, pushPath) {
		u = u.JoinPath(pushPath)
	}
	t := &Target{Name: "loki+" + u.Scheme + "://" + u.Host, id: state.HistoryQueue, form: loki, url: u.String(),
		loki: &lokiHeader{user: o.User, tenant: o.Tenant}}
	if o.PasswordFile != "" {
		t.loki.password = kube.TokenFile("--loki-password-file", o.PasswordFile, o.Logger)
		if _, err := t.loki.password.Get(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// lines returns the header of a push.
func (h *lokiHeader) lines() (map[string]string, error) {
	header := map[string]string{"Content-Type": "application/json"}
	if h.tenant != "" {
		header["X-Scope-OrgID"] = h.tenant
	}
	if h.password == nil {
		return header, nil
	}
	password, err := h.password.Get()
	if err != nil {
		return nil, err
	}
	header["Authorization"] = "Bearer " + password
	if h.user != "" {
		req := http.Request{Header: http.Header{}}
		req.SetBasicAuth(h.user, password)
		header["Authorization"] = req.Header.Get("Authorization")
	}
	return header, nil
}

// push sends the record of an event, or the event itself where it stands for none: a test.
func (t *Target) push(ctx context.Context, client *netx.Client, e *Event) error {
	header, err := t.loki.lines()
	if err != nil {
		return err
	}
	stream, at, line := map[string]string{"from": component + "-test"}, e.Time.UnixMilli(), any(fluxOf(e))
	if r := e.record; r != nil {
		stream = map[string]string{"from": "job-history", "namespace": r.Namespace, "repository": r.Repository}
		at, line = r.Finished.UnixMilli(), jobOf(r)
	}
	text, err := json.Marshal(line)
	if r := e.record; r != nil && err == nil && len(text) > mostLine {
		brief := *r
		brief.Spec, _ = json.Marshal(map[string]string{"action": r.Action, "repository": r.Repository}) // plain data
		text, err = json.Marshal(jobOf(&brief))
	}
	if err != nil {
		return fmt.Errorf("write the line of a job: %w", err)
	}
	nanoseconds := strconv.FormatInt(at, 10) + "000000"
	body, err := json.Marshal(map[string]any{"streams": []any{
		map[string]any{"stream": stream, "values": [][2]string{{nanoseconds, string(text)}}}}})
	if err != nil {
		return fmt.Errorf("write the line of a job: %w", err)
	}
	return t.call(ctx, client, http.MethodPost, header, body)
}

// historyJob is a Job as Grafana reads it from a line.
type historyJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec,omitempty"`
	Status            json.RawMessage `json:"status,omitempty"`
}

// jobOf returns the job of a record. What may change after its end is not in it.
func jobOf(r *state.Record) historyJob {
	return historyJob{
		TypeMeta: metav1.TypeMeta{Kind: "Job", APIVersion: api.Jobs.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace, UID: types.UID(r.UID), Labels: r.Labels,
			CreationTimestamp: metav1.NewTime(r.Created)},
		Spec: r.Spec, Status: r.Status,
	}
}
