package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// awsKeys are the keys of an AWS identity. They print the access key, which is no
// secret.
type awsKeys struct {
	ID      string `json:"id"`
	Secret  string `json:"secret"`
	Session string `json:"session,omitempty"`
}

func (k awsKeys) String() string { return "access key " + k.ID }

// GoString keeps %#v from walking the fields.
func (k awsKeys) GoString() string { return k.String() }

func (k awsKeys) valid() bool {
	return printable(k.ID) && printable(k.Secret) && (k.Session == "" || printable(k.Session))
}

// sign signs a canonical request by Signature Version 4. stamp is its time as it is
// written there. Source: AWS, "Create a signed AWS API request". The signer of the SDK
// always signs headers that CodeCommit's form of a password does not have.
func (k awsKeys) sign(at time.Time, stamp, region, service, canonical string) string {
	day := at.UTC().Format("20060102")
	scope := []string{day, region, service, "aws4_request"}
	key := []byte("AWS4" + k.Secret)
	for _, part := range scope {
		key = hmacSHA256(key, part)
	}
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, strings.Join(scope, "/"), hex.EncodeToString(sum[:])}, "\n")
	return hex.EncodeToString(hmacSHA256(key, text))
}

// gitPassword returns the user and the password for a repository of CodeCommit. AWS
// accepts them for 15 minutes. Source: git-remote-codecommit of AWS.
func (k awsKeys) gitPassword(at time.Time, region, host, path string) (user, password string) {
	stamp := at.UTC().Format("20060102T150405")
	signature := k.sign(at, stamp, region, "codecommit", "GIT\n"+path+"\n\nhost:"+host+"\n\nhost\n")
	user = k.ID
	if k.Session != "" {
		user += "%" + k.Session
	}
	return user, stamp + "Z" + signature
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
