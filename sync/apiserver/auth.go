package apiserver

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/apiserver/token"
)

// Gate authenticates requests to a served API. It accepts access tokens of its Signer, in X-Access-Token (as Grafana's
// controllers send them) or in Authorization, and static tokens. Probes need no token. It is safe for concurrent use.
type Gate struct {
	signer *token.Signer
	static [][sha256.Size]byte
	now    func() time.Time
}

// NewGate returns a Gate. A nil signer means static tokens only; empty static tokens are ignored.
func NewGate(signer *token.Signer, static ...string) *Gate {
	g := &Gate{signer: signer, now: time.Now}
	for _, token := range static {
		if token != "" {
			g.static = append(g.static, sha256.Sum256([]byte(token)))
		}
	}
	return g
}

// openPaths need no token: load balancers and service managers probe them.
var openPaths = []string{"/healthz", "/livez", "/readyz"}

// authenticate returns the end of a valid token, the zero time for none, else the Status error 401 (no token,
// or an invalid one) or 403 (a valid one for another namespace).
func (g *Gate) authenticate(req *http.Request) (until time.Time, err error) {
	if slices.Contains(openPaths, req.URL.Path) {
		return until, nil
	}
	given := cmp.Or(token.Bearer(req.Header.Get("X-Access-Token")), token.Bearer(req.Header.Get("Authorization")))
	switch {
	case given == "":
		return until, apierrors.NewUnauthorized("no token: send Authorization: Bearer TOKEN or X-Access-Token: Bearer TOKEN")
	case g.isStatic(given):
		return until, nil
	case g.signer == nil:
		return until, apierrors.NewUnauthorized("the token is wrong")
	}
	claims, err := g.signer.Verify(given, g.now())
	if err != nil {
		return until, apierrors.NewUnauthorized("token refused: " + err.Error())
	}
	// A path that is not an object is discovery, or unknown.
	t, _, addressed := route(req)
	if !audienceCovers(claims.Audience, t.kind) {
		return until, apierrors.NewUnauthorized("token refused: its audience does not cover " +
			cmp.Or(t.kind.Group, t.kind.Plural, "this server") + "; name it in the audiences of the token exchange")
	}
	if addressed && claims.Namespace != "*" && claims.Namespace != t.namespace {
		return until, apierrors.NewForbidden(t.resource(), t.name, errors.New("the token is for another namespace"))
	}
	return claims.ExpiresAt.Time, nil // which Verify requires
}

// isStatic reports whether a token is a static one, in constant time.
func (g *Gate) isStatic(token string) bool {
	sum := sha256.Sum256([]byte(token))
	found := 0
	for _, known := range g.static {
		found |= subtle.ConstantTimeCompare(sum[:], known[:])
	}
	return found == 1
}

// grafanaGroups require their own name in the audience, as on a real server.
var grafanaGroups = []string{api.ProvisioningGroup, api.DashboardGroup, api.FolderGroup}

// audienceCovers reports whether a token may be used for a kind. Secrets have the credentials of Repositories, so they
// belong to the provisioning group. Discovery and the groups that are not Grafana's accept a token for any served group.
func audienceCovers(audience []string, kind api.Kind) bool {
	group := kind.Group
	if isSecret(kind) {
		group = api.ProvisioningGroup
	}
	if slices.Contains(grafanaGroups, group) {
		return slices.Contains(audience, group)
	}
	return slices.ContainsFunc(audience, func(a string) bool {
		return slices.ContainsFunc(api.Kinds, func(k api.Kind) bool { return k.Group != "" && k.Group == a })
	})
}
