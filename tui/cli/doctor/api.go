package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/fileid"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Checks of the API.

// embedded reports whether the API is the embedded one, here or in the daemon.
func (p *examination) embedded() bool {
	return p.env.Embedded() && (p.daemon == nil || p.daemon.Hello().Server == "embedded")
}

// server names the API that is checked.
func (p *examination) server() string {
	switch {
	case p.client == nil || !p.direct && p.daemon == nil:
		return "embedded API"
	case !p.direct:
		return p.daemon.Hello().Server + " API of the daemon"
	}
	base, _ := p.client.Endpoint()
	return base.Redacted()
}

func (p *examination) checkAPI(ctx context.Context) check {
	switch {
	case p.clientErr != nil:
		_, next := command.Classify(p.clientErr)
		return failed(next, "%v", p.clientErr)
	case p.client == nil && p.exists:
		return skipped(p.server() + ", which is in the state file that could not be opened")
	case p.client == nil:
		return skipped(p.server() + ", which is made at the first start")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	began := time.Now()
	if err := p.client.Check(ctx); err != nil {
		found := strings.ReplaceAll(command.ErrorText(err), control.BaseURL, "the server")
		if ctx.Err() != nil {
			found = "no answer within " + checkTimeout.String()
		}
		_, next := command.Classify(err)
		return failed(cmp.Or(kube.Hint(err), next, "limpet status"), "%s: %s", p.server(), found)
	}
	c := passed("%s, answers in %s", p.server(), text.Took(time.Since(began)))
	var version struct{ GitVersion string }
	_, answer, _ := p.client.Do(ctx, http.MethodGet, "/version", nil, "", nil) // not every server has one
	if _ = json.Unmarshal(answer, &version); version.GitVersion != "" {
		c.Found += ", version " + version.GitVersion
	}
	return c
}

// certificateWarning is how long before its end an expiring certificate is a warning.
const certificateWarning = 14 * 24 * time.Hour

func (p *examination) checkTLS(ctx context.Context) check {
	if p.client == nil && !p.env.Embedded() {
		return skipped("there is no way to the API")
	}
	address := p.server()
	if p.daemon != nil && !p.direct {
		address = p.daemon.Hello().Server
	}
	u, err := url.Parse(address)
	switch {
	case err == nil && u.Scheme == "http" && !netx.Loopback(u.Hostname()):
		return warned("limpet --provisioning-server-url https://"+u.Host, "none: everybody on the way reads the token")
	case err != nil || u.Scheme != "https":
		return passed("the API is in this process or on this host")
	}
	ends, err := certificateEnds(ctx, u)
	insecure := p.direct && p.client.Insecure() || p.snap != nil && !p.direct && p.snap.API.Insecure
	return judgeCertificate(ends, err, insecure, p.now)
}

func judgeCertificate(ends time.Time, err error, insecure bool, now time.Time) check {
	c := passed("the certificate of the server is good for another %s", text.Age(ends.Sub(now)))
	switch {
	case err != nil:
		c = skipped("the certificate cannot be looked at from here: " + err.Error())
	case ends.Before(now):
		c = failed("date -u    # if the clock of this host is right, the server needs a new one",
			"the certificate of the server ended %s ago", text.Age(now.Sub(ends)))
	case ends.Sub(now) < certificateWarning:
		c = warned("give the server a new one", "the certificate of the server ends in %s", text.Age(ends.Sub(now)))
	}
	if insecure {
		c.Found += "; it is not checked (--tls-insecure)"
		if c.Result == checkOK {
			return c.but("limpet doctor --tls-ca-file FILE", "")
		}
	}
	return c
}

// certificateEnds returns the end of a server's certificate. It trusts nothing and sends nothing.
func certificateEnds(ctx context.Context, u *url.URL) (time.Time, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: u.Hostname()}}
	conn, err := dialer.DialContext(ctx, "tcp", withPort(u))
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter, nil
}

func withPort(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "ssh": "22"}[u.Scheme], "80")
	return net.JoinHostPort(u.Hostname(), port)
}

// withTokenFile is the command with another token.
const withTokenFile = "limpet doctor --token-file FILE"

func (p *examination) checkToken(context.Context) check {
	switch {
	case p.embedded():
		return passed("the embedded API needs none")
	case p.env.Embedded():
		return passed("that of the daemon")
	case p.env.Flags.TokenFile != "":
		data, err := fileid.Read(p.env.Flags.TokenFile, fileid.MaxSettings)
		if err != nil {
			return failed("ls -l "+text.ShellWord(p.env.Flags.TokenFile), "--token-file: %v", err)
		}
		if c := (place{p.env.Flags.TokenFile, 0o007}).tooOpen(); c.Found != "" {
			return c
		}
		return judgeToken(strings.TrimSpace(string(data)), p.now)
	case p.env.Flags.Token != "":
		c := judgeToken(p.env.Flags.Token, p.now)
		if p.env.Config.From["token"].Kind == "" && c.Result == checkOK {
			return c.but(withTokenFile, "; --token is seen by everybody on this host who lists processes")
		}
		return c
	case p.env.Flags.Kubeconfig != "":
		return passed("what %s says", p.env.Flags.Kubeconfig)
	}
	return warned(withTokenFile, "none is given")
}

// judgeToken describes the expiry of a token that carries one.
func judgeToken(token string, now time.Time) check {
	if token == "" {
		return failed(withTokenFile, "the file is empty")
	}
	var claims jwt.RegisteredClaims
	_, _, err := jwt.NewParser(jwt.WithPaddingAllowed()).ParseUnverified(token, &claims)
	if err != nil && !errors.Is(err, jwt.ErrTokenUnverifiable) || claims.ExpiresAt == nil {
		return passed("given; its expiry is not known")
	}
	left := claims.ExpiresAt.Sub(now)
	if left <= 0 {
		return failed(withTokenFile+"    # with a new one", "it ended %s ago", text.Age(-left))
	}
	return passed("given; it ends in %s", text.Age(left))
}

// maxClockSkew is the clock difference from which on certificates and tokens are misjudged. Claims
// do not depend on it: they carry server time.
const maxClockSkew = 30 * time.Second

func (p *examination) checkClock(context.Context) check {
	if p.embedded() {
		return passed("the API is on this host: one clock")
	}
	now, bound, ok := p.client.Clock().Now()
	return judgeClock(time.Until(now), bound, ok)
}

// judgeClock judges how far the clock of the server is ahead.
func judgeClock(ahead, bound time.Duration, ok bool) check {
	if !ok {
		return failed("curl -sI ADDRESS/apis | grep -i date", "the server sends no Date header: nothing can be claimed")
	}
	ahead, bound = ahead.Round(time.Millisecond), bound.Round(time.Millisecond)
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	c := passed("the server's is %s %s this host's (give or take %s)", ahead.Abs(), word, bound)
	if ahead.Abs() > maxClockSkew+bound {
		return c.but("timedatectl status", "; claims carry server time and do not mind")
	}
	return c
}

func (p *examination) checkResources(ctx context.Context) check {
	served := map[bool][]string{}
	for _, name := range []string{"repositories", "jobs", "historicjobs", "connections"} {
		is, err := p.client.Serves(ctx, api.Repositories.GroupVersion(), name)
		if err != nil {
			return failed(kube.Hint(err), "%s", command.ErrorText(err))
		}
		served[is] = append(served[is], name)
	}
	c, missing := passed("served: %s", strings.Join(served[true], ", ")), served[false]
	if len(missing) > 0 {
		c.Found += "; not served: " + strings.Join(missing, ", ")
	}
	if slices.Contains(missing, "repositories") || slices.Contains(missing, "jobs") {
		return failed("limpet crds | kubectl apply -f -", "%s", c.Found)
	}
	return c
}

// checkPermissions tries to list. Rights to write cannot be checked without writing.
func (p *examination) checkPermissions(ctx context.Context) check {
	var may, not []string
	namespace := p.env.Flags.ListNamespace()
	for _, res := range []command.Resource{api.Repositories, api.Jobs, api.Connections} {
		_, err := p.client.Resource(res).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			may = append(may, res.Resource)
		case apierrors.IsUnauthorized(err):
			return failed(withTokenFile, "the token is not accepted")
		case apierrors.IsForbidden(err):
			not = append(not, res.Resource)
		case !apierrors.IsNotFound(err):
			return failed(kube.Hint(err), "%s: %s", res.Resource, command.ErrorText(err))
		}
	}
	c := passed("may list %s in namespace %s", text.OrDash(strings.Join(may, ", ")), cmp.Or(namespace, "*"))
	if len(not) > 0 {
		return failed("limpet doctor --namespace NAME    # of the token, or give it a role that may list, watch and update",
			"%s, and not %s", c.Found, strings.Join(not, ", "))
	}
	return c
}
