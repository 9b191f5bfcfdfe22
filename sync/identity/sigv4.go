package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Signature Version 4 of AWS, as far as Git and STS need it. Source: AWS, "Create
// a signed AWS API request". The library's signer always signs headers that
// CodeCommit's form of a password does not have.

// awsKeys are the keys of an AWS identity. They print nothing.
type awsKeys struct {
	ID      string `json:"id"`
	Secret  string `json:"secret"`
	Session string `json:"session,omitempty"`
}

// String names the access key, which is no secret.
func (k awsKeys) String() string { return "access key " + k.ID }

// GoString keeps %#v from walking the fields.
func (k awsKeys) GoString() string { return k.String() }

// sign gives the signature of a canonical request. stamp is its time as it is
// written there.
func (k awsKeys) sign(at time.Time, stamp, region, service, canonical string) (scope, signature string) {
	day := at.UTC().Format("20060102")
	scope = strings.Join([]string{day, region, service, "aws4_request"}, "/")
	key := []byte("AWS4" + k.Secret)
	for _, part := range []string{day, region, service, "aws4_request"} {
		key = hmacSHA256(key, part)
	}
	return scope, hex.EncodeToString(hmacSHA256(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hexSHA256(canonical)))
}

// gitPassword is the user and the password for a repository of CodeCommit. AWS
// takes them for 15 minutes. Source: git-remote-codecommit of AWS.
func (k awsKeys) gitPassword(at time.Time, region, host, path string) (user, password string) {
	stamp := at.UTC().Format("20060102T150405")
	_, signature := k.sign(at, stamp, region, "codecommit", "GIT\n"+path+"\n\nhost:"+host+"\n\nhost\n")
	user = k.ID
	if k.Session != "" {
		user += "%" + k.Session
	}
	return user, stamp + "Z" + signature
}

// authorize signs a POST of a form to the root of a service, and gives the
// headers for it.
func (k awsKeys) authorize(at time.Time, region, service, host, form string) map[string]string {
	stamp := at.UTC().Format("20060102T150405Z")
	headers, names := "content-type:application/x-www-form-urlencoded\nhost:"+host+"\nx-amz-date:"+stamp+"\n", "content-type;host;x-amz-date"
	out := map[string]string{"X-Amz-Date": stamp}
	if k.Session != "" {
		headers, names = headers+"x-amz-security-token:"+k.Session+"\n", names+";x-amz-security-token"
		out["X-Amz-Security-Token"] = k.Session
	}
	scope, signature := k.sign(at, stamp, region, service, strings.Join([]string{"POST", "/", "", headers, names, hexSHA256(form)}, "\n"))
	out["Authorization"] = fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", k.ID, scope, names, signature)
	return out
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func hexSHA256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
