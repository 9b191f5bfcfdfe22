package identity

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"limpet/sync/netx"
)

// TestSignedCall is Amazon's own example. Source: the test suite of Signature Version 4, post-vanilla
// and post-x-www-form-urlencoded.
func TestSignedCall(t *testing.T) {
	t.Parallel()
	k := awsKeys{ID: "AKIDEXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	c := netx.Call{Method: http.MethodPost, URL: "https://example.amazonaws.com/"}
	begin := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders="
	want := begin + "host;x-amz-date, Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
	if got := k.signed(c, at, "us-east-1", "service", map[string]string{})["Authorization"]; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c.Body = []byte("Param1=value1")
	want = begin + "content-type;host;x-amz-date, Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
	if got := k.signed(c, at, "us-east-1", "service", map[string]string{"Content-Type": form})["Authorization"]; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// redirected sends all calls to one host.
type redirected struct{ to *fakeCloud }

func (r redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	u, _ := url.Parse(r.to.URL)
	req.URL.Scheme, req.URL.Host = u.Scheme, u.Host
	return r.to.Client().Transport.RoundTrip(req)
}

// TestRegistries: the identity of this host becomes a login of a registry of its cloud, once for many
// looks, and of no other host.
func TestRegistries(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	p := here(t, "", "https://git.example.com/x.git", "AWS_ACCESS_KEY_ID", "AKIDENV", "AWS_SECRET_ACCESS_KEY", canary, "AWS_ENDPOINT_URL_ECR", c.URL,
		"AZURE_POD_IDENTITY_AUTHORITY_HOST", c.URL, "GCE_METADATA_HOST", strings.TrimPrefix(c.URL, "http://"))
	p.providers["azure"].(*azure).registry.client.Transport = redirected{c}
	refresh, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{ExpiresAt: jwt.NewNumericDate(time.Now().Add(3 * time.Hour))}).
		SignedString([]byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	c.says("GET /metadata/identity/oauth2/token", `{"access_token":"aad","expires_in":"3600"}`)
	c.on("POST /oauth2/exchange", func(w http.ResponseWriter, _ *http.Request, form url.Values) {
		if form.Get("grant_type") != "access_token" || form.Get("service") != "site.azurecr.io" || form.Get("access_token") != "aad" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"refresh_token":%q}`, refresh)
	})
	c.says("POST /", fmt.Sprintf(`{"authorizationData":[{"authorizationToken":%q,"expiresAt":%d.5,"proxyEndpoint":"x"}]}`,
		base64.StdEncoding.EncodeToString([]byte("AWS:pass")), time.Now().Add(12*time.Hour).Unix()))
	c.says("GET /computeMetadata/v1/instance/service-accounts/default/token", `{"access_token":"ya29","expires_in":3600}`, "Metadata-Flavor", "Google")
	c.says("GET /computeMetadata/v1/instance/service-accounts/default/email", "robot@example.com", "Metadata-Flavor", "Google")
	for _, r := range []struct{ provider, host, user, password string }{
		{"aws", "123456789012.dkr.ecr.eu-west-1.amazonaws.com", "AWS", "pass"},
		{"azure", "site.azurecr.io", "00000000-0000-0000-0000-000000000000", refresh},
		{"gcp", "europe-docker.pkg.dev", "oauth2accesstoken", "ya29"},
		{"gcp", "eu.gcr.io", "oauth2accesstoken", "ya29"},
	} {
		for range 2 {
			made, err := p.Registry(t.Context(), r.provider, r.host, nil)
			if err != nil || made.Username != r.user || made.Password != r.password {
				t.Errorf("%s: %v", r.host, err)
			}
		}
	}
	if asked := c.requests(); len(asked) != 5 {
		t.Errorf("%q", asked)
	}
	for provider, host := range map[string]string{"aws": "123456789012.dkr.ecr.eu-west-1.amazonaws.com.example.com", "azure": "azurecr.io.example.com",
		"gcp": "gcr.io.example.com", "github": "ghcr.io"} {
		if _, err := p.Registry(t.Context(), provider, host, nil); netx.KindOf(err) != netx.Invalid {
			t.Errorf("%s: %v", host, err)
		}
	}
	if asked := c.requests(); len(asked) != 0 {
		t.Errorf("%q", asked)
	}
}
