package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// avoided are words that this project has a plainer or a standard one for, in lower case, and
// what to say instead. They stay out of code, messages, names of tests and documents alike. A
// star stands for the rest of a word.
var avoided = map[string]string{
	"way back":   "rollback, or reverse sync",
	"bring over": "apply, migrate", "brings over": "apply, migrate", "brought over": "apply, migrate", "bringing over": "apply, migrate",
	"bring it over": "apply, migrate", "brings it over": "apply, migrate", "brings them over": "apply, migrate",
	"outlook*": "readiness", "testoutlook*": "readiness", "awaitoutlook": "readiness",
	"speaks against": "blocks", "speak against": "blocks", "holdsback": "blocks",
	"looks whether": "checks whether", "look whether": "check whether",
	"furnish*": "ensure", "mustoffer": "announce",
	"relieve*": "hand over, unblock", "hopeless*": "unrepairable",
	"calm": "ok", "tense": "throttled",
	"whoever": "anyone who, the process that", "nobody's": "unowned, of none",
	"beside the": "next to, besides, during", "beside a": "next to, besides, during", "beside an": "next to, besides, during",
	"beside it": "next to, besides, during", "beside its": "next to, besides, during", "beside them": "next to, besides, during",
	"beside this": "next to, besides, during", "beside that": "next to, besides, during", "beside those": "next to, besides, during",
	"beside what": "next to, besides, during", "beside each": "next to, besides, during", "beside another": "next to, besides, during",
	"not any more": "no longer", "shall": "must, will",
	"errlifted": "unfence", "refuselifted": "unfence", "notelift*": "unfence",
}

// says returns where a text has a word, or -1.
func says(text, word string) int {
	stem, open := strings.CutSuffix(word, "*")
	part := func(at int) bool {
		return at >= 0 && at < len(text) && ('a' <= text[at] && text[at] <= 'z' || '0' <= text[at] && text[at] <= '9')
	}
	for from := 0; ; {
		i := strings.Index(text[from:], stem)
		if i < 0 {
			return -1
		}
		if i += from; !part(i-1) && (open || !part(i+len(stem))) {
			return i
		}
		from = i + 1
	}
}

// TestPlainWords: what was once given a plain word keeps it.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	read := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "gen" || name == "node_modules" || name == "bin" || name == "dist" || path != ".." && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		}
		// A changelog says what was; the list of words is this file.
		if name == "CHANGELOG.md" || name == "words_test.go" {
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".md", ".proto", ".yaml", ".yml", ".js", ".ts", ".json":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		lower := strings.ToLower(string(text))
		for word, better := range avoided {
			if at := says(lower, word); at >= 0 {
				t.Errorf("%s:%d: %q: say %s", path, 1+strings.Count(lower[:at], "\n"), word, better)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 1000 {
		t.Errorf("read %d files: there have long been more", read)
	}
}
