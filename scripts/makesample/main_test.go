package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const index = `Package: alpha
Source: alpha-src (1.0)
Version: 1.0-1
Installed-Size: 120
Maintainer: "Jane Doe" <jane@example.org>
Architecture: amd64
Depends: libc6 (>= 2.34), python3:any | python3.11:amd64 (<< 4),
Description: first
 of two lines
Tag: role::program, works-with::db,
 works-with::text, special
Essential: yes
MD5sum: 00
Size: 5000000000

Package: beta
Source: beta
Version: 2
Maintainer: A List
Ruby-Versions: 2.7 3.1
Size: 7
`

func TestConvert(t *testing.T) {
	t.Parallel()
	stanzas, err := parseIndex(strings.NewReader(index))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, s := range stanzas {
		d, err := convert(s, i)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bson.MarshalExtJSON(d, false, false)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
	want := []string{
		`{"_id":"alpha","name":"alpha","source":{"name":"alpha-src","version":"1.0"},"version":"1.0-1","installed_size":120,` +
			`"maintainer":{"name":"Jane Doe","email":"jane@example.org"},"architecture":"amd64",` +
			`"depends":[[{"name":"libc6","op":">=","version":"2.34"}],[{"name":"python3","arch":"any"},{"name":"python3.11","arch":"amd64","op":"<<","version":"4"}]],` +
			`"description":"first\nof two lines","tags":{"role":"program","works-with":["db","text"],"special":true},"essential":true,"size":5000000000}`,
		`{"_id":"beta","name":"beta","source":"beta","version":"2","maintainer":{"name":"A List"},"ruby_versions":["2.7","3.1"],"size":7}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRunIsDeterministicWhateverTheOrder(t *testing.T) {
	t.Parallel()
	var stanzas []string
	for i := range 100 {
		stanzas = append(stanzas, fmt.Sprintf("Package: p%02d\nArchitecture: all\nSize: %d\n", i, i))
	}
	make := func(order []string) []byte {
		out := filepath.Join(t.TempDir(), "sample.gz")
		if err := run(strings.NewReader(strings.Join(order, "\n")), out, 40); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := make(stanzas)
	// Two parts swapped, and a package listed twice.
	second := make(append(append([]string{stanzas[70]}, stanzas[50:]...), stanzas[:50]...))
	if !bytes.Equal(first, second) {
		t.Error("another order of the index gives another sample")
	}
	zip, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n != 40 {
		t.Errorf("%d records, want 40", n)
	}
}

func TestBadIndexIsRefused(t *testing.T) {
	t.Parallel()
	for name, index := range map[string]string{
		"continuation first": " of nothing\n",
		"no colon":           "Package alpha\n",
		"size":               "Package: a\nSize: big\n",
		"relation":           "Package: a\nDepends: b (>= 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(strings.NewReader(index), filepath.Join(t.TempDir(), "sample.gz"), 1); err == nil {
				t.Error("no error")
			}
		})
	}
}
