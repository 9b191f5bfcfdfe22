package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/netx"
	"limpet/sync/testenv/gittest"
)

const devops = "https://dev.azure.com/contoso/site/_git/site"

// entra is the documented answer of Microsoft Entra ID.
const entra = `{"token_type":"Bearer","expires_in":3599,"ext_expires_in":3599,"access_token":"eyJ-` + canary + `"}`

const (
	tenant     = "11111111-2222-3333-4444-555555555555"
	tenantPath = "/" + tenant + "/oauth2/v2.0/token"
)

func TestAzure(t *testing.T) {
	t.Parallel()
	const client = "66666666-7777-8888-9999-000000000000"
	imds := `{"access_token":"eyJ-` + canary + `","client_id":"` + client +
		`","expires_in":"86400","expires_on":"1900000000","ext_expires_in":"86399","not_before":"1790000000","resource":"` + azureDevOps +
		`","token_type":"Bearer"}`
	metadata := "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=499b84ac-1321-427f-aa17-267ca6975798\nMetadata: true"
	principal := "POST " + tenantPath + "\nContent-Type: application/x-www-form-urlencoded\nclient_id=" + client +
		"\nclient_secret=" + canary +
		"\ngrant_type=client_credentials\nscope=499b84ac-1321-427f-aa17-267ca6975798/.default"
	workload := "POST " + tenantPath + "\nContent-Type: application/x-www-form-urlencoded\nclient_assertion=projected-" +
		canary +
		"\nclient_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer\nclient_id=" + client +
		"\ngrant_type=client_credentials\nscope=499b84ac-1321-427f-aa17-267ca6975798/.default"
	setup := func(t *testing.T, env ...string) (*fakeCloud, *place) {
		c := newEntra(t)
		c.says("GET /metadata/identity/oauth2/token", imds)
		c.says("POST "+tenantPath, entra)
		return c, here(t, "azure", devops, append(env, "AZURE_POD_IDENTITY_AUTHORITY_HOST", c.URL)...)
	}
	ask := func(t *testing.T, c *fakeCloud, p *place, want ...string) {
		t.Helper()
		if got := p.must(t); got.Bearer != "eyJ-"+canary || got.Username+got.Password != "" {
			t.Errorf("bearer %q, user %q", got.Bearer, got.Username)
		}
		equal(t, "requests", c.requests(), want)
	}
	t.Run("managed identity", func(t *testing.T) {
		c, p := setup(t)
		ask(t, c, p, metadata)
		p.lookup.URL = "https://contoso.visualstudio.com/site/_git/other"
		ask(t, c, p) // one token for all repositories
	})
	t.Run("managed identity of a client", func(t *testing.T) {
		c, p := setup(t, "AZURE_CLIENT_ID", client)
		ask(t, c, p, "GET /metadata/identity/oauth2/token?api-version=2018-02-01&client_id="+client+
			"&resource=499b84ac-1321-427f-aa17-267ca6975798\nMetadata: true")
	})
	t.Run("workload identity", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		write(t, file, "projected-"+canary+"\n")
		c, p := setup(t, "AZURE_CLIENT_ID", client, "AZURE_TENANT_ID", tenant, "AZURE_FEDERATED_TOKEN_FILE", file)
		p.env["AZURE_AUTHORITY_HOST"] = c.URL + "/"
		ask(t, c, p, workload)
		write(t, file, "next-"+canary) // a token that has ended is replaced on the disk
		p.must(t).Refused()
		ask(t, c, p, strings.ReplaceAll(workload, "projected", "next"))
	})
	t.Run("service principal", func(t *testing.T) {
		c, p := setup(t, "AZURE_CLIENT_ID", client, "AZURE_TENANT_ID", tenant, "AZURE_CLIENT_SECRET", canary)
		p.env["AZURE_AUTHORITY_HOST"] = c.URL
		ask(t, c, p, principal)
	})
	t.Run("service principal of a rule", func(t *testing.T) {
		c, p := setup(t)
		p.lookup.URL, p.owner = c.URL+"/contoso/site", true // elsewhere than in the cloud
		p.with("AZURE_CLIENT_ID", client, "AZURE_TENANT_ID", tenant, "AZURE_CLIENT_SECRET", canary, "AZURE_AUTHORITY_HOST", c.URL)
		ask(t, c, p, principal)
	})
	t.Run("the first that is configured", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		write(t, file, "projected-"+canary)
		c, p := setup(t, "AZURE_CLIENT_ID", client, "AZURE_TENANT_ID", tenant, "AZURE_CLIENT_SECRET", canary, "AZURE_FEDERATED_TOKEN_FILE", file)
		p.env["AZURE_AUTHORITY_HOST"] = c.URL
		c.on("POST "+tenantPath, func(w http.ResponseWriter, _ *http.Request, form url.Values) { // it repeats what it was sent
			w.WriteHeader(401)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret %s. Trace ID: 1 Correlation ID: 2 Timestamp: 2026-11-20","error_codes":[7000215]}`,
				form.Get("client_secret"))
		})
		p.refuses(t, netx.Unauthorized, "service principal "+client+" of tenant "+tenant, "AADSTS7000215: Invalid client secret [redacted]",
			"POST "+c.URL+tenantPath)
		equal(t, "requests", c.requests(), []string{principal})
		if _, err := p.credentials(t.Context()); strings.Contains(err.Error(), "Trace ID") {
			t.Errorf("it is another text each time: %v", err)
		}
	})
	t.Run("certificate", func(t *testing.T) {
		other, _ := certificate(t)
		other, _, _ = strings.Cut(other, "-----BEGIN PRIVATE")
		text, certificate := certificate(t)
		file := filepath.Join(t.TempDir(), "client.pem")
		write(t, file, text+other) // with a chain
		c, p := setup(t, "AZURE_CLIENT_ID", client, "AZURE_TENANT_ID", tenant, "AZURE_CLIENT_CERTIFICATE_PATH", file)
		p.env["AZURE_AUTHORITY_HOST"] = c.URL
		p.must(t)
		asked := c.requests()
		_, rest, _ := strings.Cut(asked[0], "client_assertion=")
		proof, rest, _ := strings.Cut(rest, "\n")
		if !strings.HasPrefix(rest, "client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer\nclient_id="+client+
			"\ngrant_type=client_credentials") {
			t.Errorf("the request is %s", asked[0])
		}
		parts := strings.Split(proof, ".")
		var header, claims map[string]any
		decode(t, parts[0], &header)
		decode(t, parts[1], &claims)
		signature, err := base64.RawURLEncoding.DecodeString(parts[2])
		sum, print := sha256.Sum256([]byte(parts[0]+"."+parts[1])), sha256.Sum256(certificate.Raw)
		// RFC 7518 §3.5
		if err != nil || rsa.VerifyPSS(certificate.PublicKey.(*rsa.PublicKey), crypto.SHA256, sum[:], signature,
			&rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) != nil {
			t.Errorf("the signature does not hold: %v", err)
		}
		if header["alg"] != "PS256" || header["x5t#S256"] != base64.StdEncoding.EncodeToString(print[:]) {
			t.Errorf("the header is %v", header)
		}
		life := claims["exp"].(float64) - claims["nbf"].(float64) // Entra ID takes at most an hour
		if claims["aud"] != c.URL+tenantPath || claims["iss"] != client || claims["sub"] != client || life > 3600 || claims["jti"] == "" {
			t.Errorf("the claims are %v", claims)
		}
	})
}

// TestAzureBorders: who may write a Repository or a Secret gets neither the
// identity of the host for a host of their choice, nor its files.
func TestAzureBorders(t *testing.T) {
	t.Parallel()
	c := newEntra(t)
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, canary)
	p := here(t, "azure", "https://git.example.com/x", "AZURE_POD_IDENTITY_AUTHORITY_HOST", c.URL, "AZURE_CLIENT_SECRET", canary,
		"AZURE_AUTHORITY_HOST", c.URL,
		"AZURE_TENANT_ID", "t", "AZURE_CLIENT_ID", "c", "AZURE_FEDERATED_TOKEN_FILE", file)
	p.refuses(t, netx.Invalid, "dev.azure.com", "git-credentials", "git.example.com")
	p.lookup.URL = devops
	p.with("AZURE_TENANT_ID", "t", "AZURE_CLIENT_ID", "c", "AZURE_CLIENT_SECRET", canary, "AZURE_AUTHORITY_HOST", c.URL)
	p.refuses(t, netx.Invalid, "AZURE_AUTHORITY_HOST of a Secret is one of login.microsoftonline.com")
	p.with("AZURE_TENANT_ID", "t", "AZURE_CLIENT_ID", "c") // the secret of the environment does not complete it
	p.refuses(t, netx.Invalid, "secret default/keys has no identity of azure")
	p.with("AZURE_TENANT_ID", "t", "AZURE_CLIENT_ID", "c", "AZURE_FEDERATED_TOKEN_FILE", file, "AZURE_AUTHORITY_HOST",
		"https://login.microsoftonline.com")
	p.refuses(t, netx.Invalid, "may name a file")
	p.with("AZURE_TENANT_ID", "../x", "AZURE_CLIENT_ID", "c", "AZURE_CLIENT_SECRET", canary)
	p.refuses(t, netx.Invalid, "invalid tenantID")
	p.with("ca.crt", "-----BEGIN CERTIFICATE-----")
	p.refuses(t, netx.Invalid, "ca.crt and tls.crt must not be set")
	p.with("AZURE_TENANT_ID", "t", "AZURE_CLIENT_ID", "c", "AZURE_CLIENT_SECRET", canary)
	p.lookup.URL = "https://evil.example.com/contoso/site"
	p.refuses(t, netx.Invalid, "evil.example.com")
	p.lookup.URL = strings.Replace(devops, "https", "http", 1)
	p.refuses(t, netx.Invalid, "https only")
	p.lookup.URL = devops
	text, _ := certificate(t)
	cert, _, _ := strings.Cut(text, "-----BEGIN PRIVATE")
	key, _ := gittest.LargeRSA(t)
	// PKCS#12 may ask for long work, also a good one is refused.
	file = filepath.Join(t.TempDir(), "client.pem")
	write(t, file, text)
	other, err := exec.Command("openssl", "pkcs12", "-export", "-in", file, "-passout", "pass:", "-macalg", "sha1",
		"-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-3DES").Output()
	if err != nil {
		t.Fatal(err)
	}
	foreign, _ := certificate(t)
	_, own, _ := strings.Cut(foreign, "-----END CERTIFICATE-----\n")
	for _, bad := range []string{string(other), cert + string(key), cert, own, cert + own} {
		p.with("AZURE_TENANT_ID", "t", "AZURE_CLIENT_ID", "c", "AZURE_CLIENT_CERTIFICATE", bad)
		p.refuses(t, netx.Invalid, "not a PEM certificate with its unencrypted key")
	}
	if asked := c.requests(); len(asked) > 0 {
		t.Errorf("somebody was asked: %q", asked)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func decode(t *testing.T, part string, out any) {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(part)
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// certificate makes a certificate with its key, as PEM and as it is read.
func certificate(t *testing.T) (string, *x509.Certificate) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "limpet"}, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), certificate
}
