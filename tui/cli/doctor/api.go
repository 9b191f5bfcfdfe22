package doctor

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"limpet/tui/cli/command"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// Checks of the API.

// server names the API that is checked.
func (p *examination) server() string {
	switch {
	case p.client == nil:
		return "embedded API"
	case !p.direct && p.daemon != nil:
		return p.daemon.Hello().Server + " API of the daemon"
	case !p.direct:
		return "embedded API"
	}
	base, _ := p.client.Endpoint()
	return base.Redacted()
}

func (p *examination) checkAPI(ctx context.Context) check {
	c := check{"api", checkOK, p.server(), ""}
	if p.client == nil {
		if p.clientErr != nil {
			c.Result, c.Found = checkFail, p.clientErr.Error()
			_, c.Next = command.Classify(p.clientErr)
			return c
		}
		c.Result = checkSkipped
		if c.Found += ", which is made at the first start"; p.exists {
			c.Found = p.server() + ", which is in the state file that could not be opened"
		}
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	began := time.Now()
	if err := p.client.Check(ctx); err != nil {
		c.Result, c.Found = checkFail, p.server()+": "+strings.ReplaceAll(command.ErrorText(err), control.BaseURL, "the server")
		if ctx.Err() != nil {
			c.Found = p.server() + ": no answer within " + checkTimeout.String()
		}
		if c.Next = kube.Hint(err); c.Next == "" {
			_, c.Next = command.Classify(err)
		}
		if c.Next == "" {
			c.Next = "limpet status"
		}
		return c
	}
	c.Found += ", answers in " + max(time.Since(began).Round(time.Millisecond), time.Millisecond).String()
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if _, answer, err := p.client.Do(ctx, http.MethodGet, "/version", nil, "", nil); err == nil &&
		json.Unmarshal(answer, &version) == nil && version.GitVersion != "" {
		c.Found += ", version " + version.GitVersion
	}
	return c
}

// certificateWarning is how long before its end an expiring certificate is a warning.
const certificateWarning = 14 * 24 * time.Hour

func (p *examination) checkTLS(ctx context.Context) check {
	c := check{"tls", checkOK, "", ""}
	if p.client == nil && !p.Embedded() {
		return check{c.Name, checkSkipped, "there is no way to the API", ""}
	}
	address := p.server()
	if p.daemon != nil && !p.direct {
		address = p.daemon.Hello().Server
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		c.Found = "the API is in this process or on this host"
		if err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
			c.Result, c.Found, c.Next = checkWarn, "none: everybody on the way reads the token", "limpet --provisioning-server-url https://"+u.Host
		}
		return c
	}
	ends, err := certificateEnds(ctx, u)
	insecure := p.direct && p.client.Insecure() || p.snap != nil && !p.direct && p.snap.API.Insecure
	return certificateText(c, ends, err, insecure, p.now)
}

func certificateText(c check, ends time.Time, err error, insecure bool, now time.Time) check {
	switch {
	case err != nil:
		c.Result, c.Found = checkSkipped, "the certificate cannot be looked at from here: "+err.Error()
	case ends.Before(now):
		c.Result, c.Found, c.Next = checkFail, "the certificate of the server ended "+text.Age(now.Sub(ends))+" ago", "date -u    # if the clock of this host is right, the server needs a new one"
	case ends.Sub(now) < certificateWarning:
		c.Result, c.Found, c.Next = checkWarn, "the certificate of the server ends in "+text.Age(ends.Sub(now)), "give the server a new one"
	default:
		c.Found = "the certificate of the server is good for another " + text.Age(ends.Sub(now))
	}
	if insecure {
		c.Found += "; it is not checked (--tls-insecure)"
		if c.Result == checkOK {
			c.Result, c.Next = checkWarn, "limpet doctor --tls-ca-file FILE"
		}
	}
	return c
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// certificateEnds returns the end of a server's certificate. It trusts nothing and sends nothing.
func certificateEnds(ctx context.Context, u *url.URL) (time.Time, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: u.Hostname()}}
	conn, err := dialer.DialContext(ctx, "tcp", withPort(u))
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	return state.PeerCertificates[0].NotAfter, nil
}

// withPort returns the host and port of a URL.
func withPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "ssh": "22"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func (p *examination) checkToken(context.Context) check {
	c := check{"token", checkOK, "", ""}
	switch {
	case p.Embedded() && p.daemon != nil && p.daemon.Hello().Server != "embedded":
		c.Found = "that of the daemon"
	case p.Embedded():
		c.Found = "the embedded API needs none"
	case p.Flags.TokenFile != "":
		data, err := p.ReadFile(p.Flags.TokenFile)
		if err != nil {
			return check{c.Name, checkFail, "--token-file: " + err.Error(), "ls -l " + command.ShellWord(p.Flags.TokenFile)}
		}
		if fault, next := tooOpen(p.Flags.TokenFile, 0o007); fault != "" {
			return check{c.Name, checkFail, fault, next}
		}
		return tokenText(c, command.TrimLine(data), p.now)
	case p.Flags.Token != "":
		c = tokenText(c, p.Flags.Token, p.now)
		if p.Config.From["token"].Kind == "" && c.Result == checkOK {
			c.Result, c.Next = checkWarn, "limpet doctor --token-file FILE"
			c.Found += "; --token is seen by everybody on this host who lists processes"
		}
	case p.Flags.Kubeconfig != "":
		c.Found = "what " + p.Flags.Kubeconfig + " says"
	default:
		c.Result, c.Found, c.Next = checkWarn, "none is given", "limpet doctor --token-file FILE"
	}
	return c
}

// tokenText describes the expiry of a token that carries one.
func tokenText(c check, token string, now time.Time) check {
	parts := strings.Split(token, ".")
	if token == "" {
		return check{c.Name, checkFail, "the file is empty", "limpet doctor --token-file FILE"}
	}
	c.Found = "given; it does not tell when it ends"
	if len(parts) != 3 {
		return c
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct {
		Expiry json.Number `json:"exp"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return c
	}
	seconds, err := claims.Expiry.Int64()
	if err != nil {
		return c
	}
	switch left := time.Unix(seconds, 0).Sub(now); {
	case left <= 0:
		return check{c.Name, checkFail, "it ended " + text.Age(-left) + " ago", "limpet doctor --token-file FILE    # with a new one"}
	default:
		c.Found = "given; it ends in " + text.Age(left)
	}
	return c
}

// maxClockSkew is the clock difference from which on certificates and tokens are misjudged. Claims do not depend
// on it: they carry server time.
const maxClockSkew = 30 * time.Second

func (p *examination) checkClock(ctx context.Context) check {
	c := check{"clock", checkOK, "the API is on this host, and has its clock", ""}
	if p.Embedded() && (p.daemon == nil || p.daemon.Hello().Server == "embedded") {
		return c
	}
	now, bound, ok := p.client.Clock().Now()
	return clockText(c, time.Until(now), bound, ok)
}

// clockText judges how far the clock of the server is ahead.
func clockText(c check, ahead, bound time.Duration, ok bool) check {
	if !ok {
		return check{c.Name, checkFail, "the server sends no Date header: nothing can be claimed", "curl -sI ADDRESS/apis | grep -i date"}
	}
	ahead, bound = ahead.Round(time.Millisecond), bound.Round(time.Millisecond)
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	c.Found = fmt.Sprintf("the server's is %s %s this host's (give or take %s)", ahead.Abs(), word, bound)
	if ahead.Abs() > maxClockSkew+bound {
		c.Result, c.Next = checkWarn, "timedatectl status"
		c.Found += "; claims carry server time and do not mind"
	}
	return c
}

func (p *examination) checkResources(ctx context.Context) check {
	c := check{"resources", checkOK, "", ""}
	var served, missing []string
	for _, name := range []string{"repositories", "jobs", "historicjobs", "connections"} {
		is, err := p.client.Serves(ctx, name)
		if err != nil {
			return check{c.Name, checkFail, command.ErrorText(err), kube.Hint(err)}
		}
		if is {
			served = append(served, name)
		} else {
			missing = append(missing, name)
		}
	}
	c.Found = "served: " + strings.Join(served, ", ")
	if len(missing) > 0 {
		c.Found += "; not served: " + strings.Join(missing, ", ")
	}
	if slices.Contains(missing, "repositories") || slices.Contains(missing, "jobs") {
		c.Result, c.Next = checkFail, "limpet crds | kubectl apply -f -"
	}
	return c
}

// checkPermissions tries to list. Rights to write cannot be checked without writing.
func (p *examination) checkPermissions(ctx context.Context) check {
	c := check{"permissions", checkOK, "", ""}
	var may, not []string
	for _, res := range []command.Resource{api.Repositories, api.Jobs, api.Connections} {
		_, err := p.client.Resource(res).Namespace(p.Flags.ListNamespace()).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			may = append(may, res.Resource)
		case apierrors.IsUnauthorized(err):
			return check{c.Name, checkFail, "the token is not accepted", "limpet doctor --token-file FILE"}
		case apierrors.IsForbidden(err):
			not = append(not, res.Resource)
		case !apierrors.IsNotFound(err):
			return check{c.Name, checkFail, res.Resource + ": " + command.ErrorText(err), kube.Hint(err)}
		}
	}
	where := "in namespace " + p.Flags.ListNamespace()
	if p.Flags.ListNamespace() == "" {
		where = "in all namespaces"
	}
	c.Found = fmt.Sprintf("may list %s %s", text.OrDash(strings.Join(may, ", ")), where)
	if len(not) > 0 {
		c.Result, c.Next = checkFail, "limpet doctor --namespace NAME    # of the token, or give it a role that may list, watch and update"
		c.Found += ", and not " + strings.Join(not, ", ")
	}
	return c
}
