package e2e

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// audit is what the request log of the API says about the jobs: who held which job when,
// and the writes without a claim. Object versions give the order of the writes.
type audit struct {
	jobs   map[string]*trail // by UID
	wrong  []string
	claims int // that were made
	// Of the requests that agents made about jobs: PUTs that met a newer
	// version, those of them that were to claim, and reads.
	conflicts, lostClaims, reads int
	// Who has given a job back without hearing whether that was taken, by UID.
	halfReturned map[string][]string
}

// trail is the history of one job.
type trail struct {
	holder, token      string // who has it now, under which token; "" = nobody
	claimed            int64  // the label, server milliseconds
	claims             int
	archived, finished int // HistoricJobs made, DELETEs taken
	// DELETEs and HistoricJobs whose client went, or was killed, before the answer.
	perhaps, perhapsArchived int
	last                     string
}

// event is one write that took effect, with what it says.
type event struct {
	testenv.Request
	about             string // UID of the job
	token             string // owner label in the body
	claimed           int64
	archive, deletion bool
}

// auditOf follows every job through the log since the mark. expiry is that of the claims.
func auditOf(t testing.TB, all []testenv.Request, expiry time.Duration) *audit {
	t.Helper()
	a := &audit{jobs: map[string]*trail{}, halfReturned: map[string][]string{}}
	unanswered, halfArchived := map[string]int{}, map[string]int{} // DELETEs and HistoricJobs by UID
	byJob, held := map[string][]event{}, map[string]bool{}
	refused := map[string]int{}  // conflicts by token
	names := map[string]string{} // name of a job to the UID that was seen last under it
	for _, r := range all {
		if !strings.Contains(r.Path, "/namespaces/") || !strings.HasPrefix(r.User, "agent-") && r.Method != http.MethodPost {
			continue
		}
		kind := strings.Split(strings.SplitAfterN(r.Path, "/namespaces/", 2)[1], "/")[1]
		if kind != "jobs" && kind != "historicjobs" {
			continue
		}
		var body struct {
			Metadata struct {
				UID    string
				Labels map[string]string
			}
			Preconditions struct{ UID string }
			Status        struct{ State string }
		}
		if len(r.Body) > 0 {
			if err := json.Unmarshal(r.Body, &body); err != nil {
				t.Fatalf("%s: %v", r, err)
			}
		}
		e := event{Request: r, about: r.UID, token: body.Metadata.Labels[api.LabelClaimOwner]}
		e.claimed, _ = strconv.ParseInt(body.Metadata.Labels[api.LabelClaim], 10, 64)
		name := path.Base(r.Path)
		switch {
		case kind == "jobs" && r.Method == http.MethodGet && name != "jobs":
			a.reads++
			continue
		case kind == "jobs" && r.Method == http.MethodPut && r.Code == http.StatusConflict:
			a.conflicts++
			refused[e.token]++
			continue
		case kind == "jobs" && r.Method == http.MethodPut && r.Code >= 500 && e.token == "":
			a.halfReturned[body.Metadata.UID] = append(a.halfReturned[body.Metadata.UID], r.User)
			continue
		case kind == "jobs" && r.Method == http.MethodDelete && r.Code >= 500:
			unanswered[body.Preconditions.UID]++
			continue
		case kind == "historicjobs" && r.Method == http.MethodPost && r.Code >= 500:
			halfArchived[body.Metadata.Labels[api.LabelOriginalUID]]++
			continue
		case r.Code >= 300:
			continue
		case kind == "jobs" && r.Method == http.MethodPost:
			names[bodyName(r.Body)] = r.UID
			continue
		case kind == "jobs" && r.Method == http.MethodPut:
			names[name] = r.UID
		case kind == "jobs" && r.Method == http.MethodDelete:
			e.deletion = true
			if e.about = body.Preconditions.UID; e.about == "" {
				a.wrong = append(a.wrong, fmt.Sprintf("%s deleted %s without its UID", r.User, name))
				e.about = names[name]
			}
		case kind == "historicjobs" && r.Method == http.MethodPost:
			e.archive, e.about = true, body.Metadata.Labels[api.LabelOriginalUID]
		default:
			continue
		}
		if e.deletion {
			e.Version = math.MaxInt64 // the answer has none, and nothing follows it
		}
		byJob[e.about] = append(byJob[e.about], e)
	}
	for _, events := range byJob {
		// Answers may pass each other; versions cannot.
		slices.SortStableFunc(events, func(x, y event) int { return cmp.Compare(x.Version, y.Version) })
		for _, e := range events {
			if e.token != "" {
				held[e.token] = true
			}
			a.follow(e, expiry)
		}
	}
	for uid, n := range unanswered {
		if tr := a.jobs[uid]; tr != nil {
			tr.perhaps = n
		}
	}
	for uid, n := range halfArchived {
		if tr := a.jobs[uid]; tr != nil {
			tr.perhapsArchived = n
		}
	}
	for token, n := range refused { // a token that never held anything was refused its claim
		if token != "" && !held[token] {
			a.lostClaims += n
		}
	}
	return a
}

func (a *audit) follow(e event, expiry time.Duration) {
	tr := a.jobs[e.about]
	if tr == nil {
		tr = &trail{}
		a.jobs[e.about] = tr
	}
	expired := tr.claimed+expiry.Milliseconds() <= e.At
	mine := tr.holder == e.User
	wrong := func(what string) {
		a.wrong = append(a.wrong, fmt.Sprintf("%s %s job %s, which %s has had since %s (last: %s)", e.User, what, e.about, tr.holder,
			time.UnixMilli(tr.claimed).Format("15:04:05.000"), tr.last))
	}
	switch {
	case tr.finished > 0:
		a.wrong = append(a.wrong, fmt.Sprintf("%s wrote job %s after its end", e.User, e.about))
	case e.archive:
		tr.archived++
		if !mine {
			wrong("made the HistoricJob of")
		}
	case e.deletion:
		tr.finished++
		if !mine && !expired {
			wrong("deleted")
		}
	case e.token == tr.token: // renewal, progress, or an edit of a free job
		if e.token != "" && !mine {
			wrong("used the token of")
		}
		tr.claimed = max(tr.claimed, e.claimed)
	case e.token == "": // given back, or taken from a dead owner
		if !mine && !expired {
			wrong("gave back")
		}
		tr.holder, tr.token, tr.claimed = "", "", 0
	default: // claimed
		a.claims++
		tr.claims++
		if tr.token != "" && !mine && !expired && !slices.Contains(a.halfReturned[e.about], tr.holder) {
			wrong("claimed")
		}
		tr.holder, tr.token, tr.claimed = e.User, e.token, e.claimed
	}
	tr.last = fmt.Sprintf("%s %s by %s, version %d", e.Method, time.UnixMilli(e.At).Format("15:04:05.000"), e.User, e.Version)
}

func bodyName(body []byte) string {
	var u struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(body, &u) // "" when it is none
	return u.Metadata.Name
}

// judge fails the test for every write without a claim, and for every job that has not ended
// exactly once.
func (a *audit) judge(t testing.TB, uids ...string) {
	t.Helper()
	for _, w := range a.wrong {
		t.Error(w)
	}
	for _, uid := range uids {
		tr := a.jobs[uid]
		switch {
		case tr == nil:
			t.Errorf("job %s was never touched", uid)
		case tr.archived > 1 || tr.archived+tr.perhapsArchived == 0 || tr.finished > 1 || tr.finished+tr.perhaps == 0:
			t.Errorf("job %s: %d HistoricJobs, deleted %d times, claimed %d times (last: %s)", uid, tr.archived, tr.finished, tr.claims, tr.last)
		}
	}
}

// evidence is everything a person or another process can see of an agent: dashboard screens,
// command output, and the arguments of its process and children. The dashboard opens repo.
func (h *home) evidence(t *testing.T, d *daemon, repo string) string {
	t.Helper()
	var seen strings.Builder
	for _, args := range [][]string{{"get", "repositories", "-o", "yaml"}, {"get", "connections", "-o", "yaml"},
		{"get", "jobs", "-o", "yaml"}, {"history", "list", "-o", "json"},
		{"repo", "list", "-o", "wide"}, {"repo", "list", "-o", "json"}, {"job", "list", "-o", "json"}, {"status"}, {"status", "-o", "json"},
		{"repo", "show", repo}, {"doctor"}, {"config", "show"}} {
		r := h.run(t, args...) // not all is well
		seen.WriteString(r.out + r.err)
	}
	screen := h.terminal(t)
	screen.shows(t, repo)
	for _, keys := range []string{"1", "\t", "2", "\r", "\x1b", "3", "\r", "h", "\r", "?", "?"} {
		screen.walk(t, keys)
	}
	screen.Press(t, "q")
	if code := screen.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	sent := screen.Raw()
	seen.WriteString(sent + controls.ReplaceAllString(sent, ""))
	seen.WriteString(arguments(t, d.cmd.Process.Pid))
	return seen.String()
}

// controls are what moves the cursor and changes colours.
var controls = regexp.MustCompile(`\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-_])`)

// walk presses keys and waits until something is drawn, if anything is.
func (tt *terminal) walk(t *testing.T, keys string) {
	t.Helper()
	before := tt.Bytes()
	tt.Press(t, keys)
	tick, enough := time.NewTicker(10*time.Millisecond), time.After(time.Second)
	defer tick.Stop()
	for tt.Bytes() == before {
		select {
		case <-tick.C:
		case <-enough:
			return
		}
	}
}

// arguments are those of a process and of its children.
func arguments(t *testing.T, pid int) string {
	t.Helper()
	if _, err := os.Stat("/proc/self/task"); err != nil {
		return "" // not Linux
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) == 0 {
		t.Errorf("the arguments of the agent: %q, %v", line, err)
	}
	text := string(line)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list) // a thread may have ended
		for child := range strings.FieldsSeq(string(children)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			text += string(line)
		}
	}
	return text
}

// apiClient is a user of the API server beside the agents. Its errors fail the test.
type apiClient struct {
	*kube.Client
	t         *testing.T
	namespace string
}

// connectUser connects as the named user, with a default namespace for create and list.
func connectUser(t *testing.T, s *testenv.Server, user, namespace string) *apiClient {
	t.Helper()
	client, err := kube.Connect(t.Context(), kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.TokenOf(user),
		UserAgent: user})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &apiClient{client, t, namespace}
}

// kindOfResource has the kinds of the resources that tests create.
var kindOfResource = map[schema.GroupVersionResource]string{api.Repositories: "Repository", api.Jobs: "Job"}

// newObject returns an object of the provisioning group, labelled with its repository.
func newObject(resource schema.GroupVersionResource, name string, labels map[string]string,
	spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(resource.GroupVersion().String())
	u.SetKind(kindOfResource[resource])
	u.SetName(name)
	all := map[string]string{}
	for k, v := range labels {
		all[k] = v
	}
	if repository, ok := spec["repository"].(string); ok {
		all[api.LabelRepository] = repository
	}
	u.SetLabels(all)
	return u
}

// create creates an object; nil when the name is taken.
func (c *apiClient) create(resource schema.GroupVersionResource, name string, labels map[string]string,
	spec map[string]any) *unstructured.Unstructured {
	c.t.Helper()
	u, err := c.Resource(resource).Namespace(c.namespace).Create(c.t.Context(), newObject(resource, name, labels, spec),
		metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		c.t.Fatalf("create %s %s: %v", resource.Resource, name, err)
	}
	return u
}

// list returns all objects of the namespace.
func (c *apiClient) list(resource schema.GroupVersionResource) []unstructured.Unstructured {
	c.t.Helper()
	list, err := c.Resource(resource).Namespace(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// archived counts the HistoricJobs by the UID of their job.
func (c *apiClient) archived() map[string]int {
	c.t.Helper()
	times := map[string]int{}
	for _, o := range c.list(api.HistoricJobs) {
		times[o.GetLabels()[api.LabelOriginalUID]]++
	}
	return times
}

// gitRepository is the spec of a Repository that is pulled from a URL.
func gitRepository(name, url, branch string, interval time.Duration) map[string]any {
	return map[string]any{"title": name, "type": "git", "workflows": []any{},
		"git":  map[string]any{"url": url, "branch": branch, "path": testenv.Directory},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(interval / time.Second)}}
}

// disabledRepository is one whose sync is off: a pull of it is claimed, runs and ends as
// error at once. Nothing in limpet does less.
func disabledRepository(name string) map[string]any {
	spec := gitRepository(name, "https://git.invalid/"+name+".git", testenv.Branch, time.Hour)
	spec["sync"].(map[string]any)["enabled"] = false
	return spec
}

// pullJob is the spec of a pull.
func pullJob(repository string, incremental bool) map[string]any {
	return map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": incremental}}
}

// secretFiles are the files and directories of a home that hold secrets by purpose.
var secretFiles = []string{"token", "subject", "credentials", "tls"}

// noSecret looks for secrets in everything else below a home, and in a log.
func (h *home) noSecret(t *testing.T, log string, secrets ...string) {
	t.Helper()
	if found := holds([]byte(log), secrets...); found != "" {
		t.Errorf("the log has the secret %s", found)
	}
	err := filepath.WalkDir(h.dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(secretFiles, d.Name()) && d.IsDir():
			return filepath.SkipDir
		case slices.Contains(secretFiles, d.Name()) || !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(file)
		if found := holds(data, secrets...); found != "" {
			t.Errorf("%s has the secret %s", file, found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// holds returns the first secret that a text has, plain or as in an
// Authorization header of the user git; "" when there is none.
func holds(text []byte, secrets ...string) string {
	for _, secret := range secrets {
		basic := base64.StdEncoding.EncodeToString([]byte("git:" + secret))
		for _, form := range []string{secret, strings.TrimRight(basic, "=")} {
			if bytes.Contains(text, []byte(form)) {
				return form
			}
		}
	}
	return ""
}
