package export

import (
	"crypto/sha1"
	"fmt"
	"strings"
	"unicode"
)

// maxSlug is the length from which on a slug is a hash. Source: Grafana. Unit: bytes.
const maxSlug = 50

// separators become one hyphen, and none at the ends.
const separators = " -_,.?!/\\%'\"()[]{}\n\r\x00"

// Slug returns the name that Grafana gives the file of an object with this title, without extension.
func Slug(title string) string {
	var out strings.Builder
	apart := false
	for _, c := range strings.TrimSpace(title) {
		c = unicode.ToLower(c)
		if strings.ContainsRune(separators, c) {
			apart = true
			continue
		}
		if apart && out.Len() > 0 {
			out.WriteByte('-')
		}
		latin, known := letters[c]
		switch apart = false; {
		case known:
			out.WriteString(latin)
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			out.WriteRune(c)
		default:
			fmt.Fprintf(&out, "%x", string(c))
			apart = true
		}
	}
	slug := strings.TrimRight(out.String(), "-")
	if slug == "" || len(slug) > maxSlug {
		return fmt.Sprintf("%x", sha1.Sum([]byte(slug)))[:7]
	}
	return slug
}

// spelling has the characters that Grafana's slugs spell in another way: all of a word are spelled as its beginning, up
// to the equals sign. Some letters, such as ñ, are missing in Grafana too, and are spelled in hex.
var spelling = strings.Fields(`
a=àáâäåāăąǎǻảãạắằẳẵặấầẩẫậаא and=& at=@ ae=æǽ b=бב c=çćĉċčцצ© ch=ч d=ďđдד
e=èéêëēĕėęěəẻẽẹếềểễệеєע f=ƒф g=ĝğġģгґג h=ĥħхהח i=ìíîïĩīĭįıǐỉịиіїי ij=ĳ j=ĵй ja=я je=э jo=ё ju=ю
k=ķĸкךכ l=ĺļľŀłлל m=мםמ n=ńņňŉŋнןנ o=òóôõöøōŏőơǒǿỏọốồổỗộớờởỡợо oe=œ p=þпףפ q=ק
r=ŕŗřрר® s=śŝşšсס sch=щ sh=ш ss=ß t=ţťŧтטת tm=™ u=ùúûũūŭůűųưǔǖǘǚǜủụứừửữựу ue=ü v=вו w=ŵש
y=ýÿŷỳỷỹỵы z=źżžſзז zh=ж C=ץ -=ъь`)

var letters = func() map[rune]string {
	out := map[rune]string{}
	for _, group := range spelling {
		latin, all, _ := strings.Cut(group, "=")
		for _, c := range all {
			out[c] = latin
		}
	}
	return out
}()
