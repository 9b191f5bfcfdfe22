package ptytest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hinshun/vt10x"
)

// screenOf is what a terminal shows of some bytes.
func screenOf(w, h int, sent string) [][]vt10x.Glyph {
	term := vt10x.New(vt10x.WithSize(w, h))
	_, _ = term.Write([]byte(sent))
	out := make([][]vt10x.Glyph, h)
	for y := range h {
		for x := range w {
			out[y] = append(out[y], term.Cell(x, y))
		}
	}
	return out
}

func same(line string) string { return line }

// TestPictureKeepsForeignText: a picture is XML whatever is on the screen, and has
// no elements but its own.
func TestPictureKeepsForeignText(t *testing.T) {
	t.Parallel()
	const evil = `</text><script>alert(1)</script><a href="x" onload='y'>&amp; ]]> <!--`
	svg, err := draw(evil+"\x00\x1b\xff", screenOf(100, 3, evil+"\r\n\x1b[1;31mred\x1b[0m\x1b[7m on \x1b[0m"), same)
	if err != nil {
		t.Fatal(err)
	}
	var texts strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if !strings.Contains(" svg title style rect text ", " "+token.Name.Local+" ") {
				t.Errorf("an element %s", token.Name.Local)
			}
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
					t.Errorf("an attribute %s", a.Name.Local)
				}
			}
		case xml.CharData:
			texts.Write(token)
		case xml.Comment, xml.ProcInst, xml.Directive:
			t.Errorf("a %T", token)
		}
	}
	if n := strings.Count(texts.String(), evil); n != 2 {
		t.Errorf("the text is there %d times, want the title and the line:\n%s", n, texts.String())
	}
	for _, want := range []string{`class="c9 b">red</text>`, `class="c16"/>`, `class="c17">on</text>`} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}

func TestPictureIsTheSameForTheSameScreen(t *testing.T) {
	t.Parallel()
	noClock := func(line string) string {
		return strings.NewReplacer("14:02:37Z", "12:00:00Z", "15:00:01Z", "12:00:00Z").Replace(line)
	}
	a, err := draw("t", screenOf(20, 2, "at 14:02:37Z"), noClock)
	if err != nil {
		t.Fatal(err)
	}
	b, err := draw("t", screenOf(20, 2, "at 15:00:01Z"), noClock)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) || !strings.Contains(string(a), "at 12:00:00Z") {
		t.Errorf("%s\n%s", a, b)
	}
	if _, err := draw("t", screenOf(20, 2, "at"), func(string) string { return "short" }); err == nil {
		t.Error("a line of another length tears the columns")
	}
}
