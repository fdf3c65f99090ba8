package lenses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/lint"
)

const lensPage = "../../../../../../docs/lens.md"

// TestLensPageIsTrue runs every command of docs/lens.md on the files that the page itself
// has, and maps every request of its tables, and compares with what it prints.
func TestLensPageIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(lensPage)
	if err != nil {
		t.Fatal(err)
	}
	p := &lensPageReader{t: t, dir: t.TempDir()}
	p.read(strings.Split(string(page), "\n"))
	if p.commands == 0 || p.requests == 0 {
		t.Fatalf("%d commands, %d requests", p.commands, p.requests)
	}
	clitest.Golden(t, lensPage, strings.Join(p.out, "\n"))
}

// TestLensPageHasEveryOperation: a section each, with its keys and what must be known.
func TestLensPageHasEveryOperation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(lensPage)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs struct {
			Operation struct {
				Properties map[string]struct{ Properties map[string]any }
			}
		} `json:"$defs"`
		Properties map[string]any
	}
	if err := json.Unmarshal(lens.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	if len(schema.Defs.Operation.Properties) < 10 {
		t.Fatal("the schema has no operations")
	}
	for name, op := range schema.Defs.Operation.Properties {
		_, section, found := strings.Cut(string(page), "\n### "+name+"\n")
		if !found {
			t.Errorf("%s has no section", name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n##")
		section = strings.TrimPrefix(section, "\n")
		for _, part := range []string{"**Up.**", "**Down.**", "**Guarantees.**", "**Errors.**", "**Requests.**", "$ dbcontroller lens ", "```yaml"} {
			if !strings.Contains(section, part) {
				t.Errorf("the section of %s has no %s", name, part)
			}
		}
		for key := range op.Properties {
			if !strings.Contains(section, "`"+key+"`") {
				t.Errorf("the section of %s does not speak of `%s`", name, key)
			}
		}
	}
	for key := range schema.Properties {
		if !strings.Contains(string(page), "| `"+key+"` |") {
			t.Errorf("the table of the file's keys does not have `%s`", key)
		}
	}
}

// lensPageReader writes the page anew.
type lensPageReader struct {
	t                  *testing.T
	dir                string
	files              []string
	lens               *lens.Lens // the last one on the page
	out                []string
	commands, requests int
}

func (p *lensPageReader) read(lines []string) {
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		p.out = append(p.out, line)
		switch {
		case strings.HasPrefix(line, "```") && len(line) > 3:
			end := i + 1
			for lines[end] != "```" {
				end++
			}
			body := lines[i+1 : end]
			if line == "```console" {
				body = p.console(body)
			} else if _, name, named := strings.Cut(line, " "); named {
				p.file(name, strings.Join(body, "\n")+"\n")
			}
			p.out = append(append(p.out, body...), "```")
			i = end
		case strings.HasPrefix(line, "| request "):
			m := p.lens.UpMapping()
			if strings.HasPrefix(line, "| request of the new") {
				m = p.lens.DownMapping()
			}
			p.out = append(p.out, lines[i+1])
			for i += 2; strings.HasPrefix(lines[i], "|"); i++ {
				request := strings.Split(lines[i], "`")[1]
				p.out = append(p.out, "| `"+request+"` | "+p.mapped(m, request)+" |")
				p.requests++
			}
			i--
		}
	}
}

// file is one that the commands use.
func (p *lensPageReader) file(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.files = append(p.files, name)
	// What is wrong is for lint to say, and a data update need not be an upgrade.
	if strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, "wrong") && !strings.HasPrefix(name, "update") {
		id := func(v []bson.RawValue) ([]bson.RawValue, error) { return v, nil }
		files, errs := lint.Load([]lint.Input{{Path: path}}, nil, lens.WithHooks(lens.Hooks{"normalize": {Up: id, Down: id}}))
		if len(errs) > 0 {
			p.t.Fatal(errs)
		}
		p.lens = files[0].Lens
	}
}

// console runs the commands of a block and returns it with what they print.
func (p *lensPageReader) console(body []string) []string {
	var out []string
	for _, line := range body {
		rest, ok := strings.CutPrefix(line, "$ dbcontroller lens ")
		if !ok {
			if strings.HasPrefix(line, "$") {
				p.t.Errorf("%s: only lens commands can be run", line)
			}
			continue
		}
		p.commands++
		stdin := ""
		if command, text, here := strings.Cut(rest, " <<< "); here {
			rest, stdin = command, strings.Trim(text, "'")
		} else if command, name, from := strings.Cut(rest, " < "); from {
			text, err := os.ReadFile(filepath.Join(p.dir, name))
			if err != nil {
				p.t.Fatal(err)
			}
			rest, stdin = command, string(text)
		}
		args := strings.Fields(rest)
		for i, a := range args {
			kind, name, ok := strings.Cut(a, "=")
			switch {
			case slices.Contains(p.files, a):
				args[i] = filepath.Join(p.dir, a)
			case ok && slices.Contains(p.files, name):
				args[i] = kind + "=" + filepath.Join(p.dir, name)
			}
		}
		text, err := runLens(p.t, stdin, strings.Join(args, " "))
		if err != nil {
			text += "dbcontroller: " + err.Error() + "\n"
		}
		text = strings.ReplaceAll(fixedRates(text), p.dir+"/", "")
		out = append(append(out, line), strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	}
	return out
}

var comparison = regexp.MustCompile(`^(\S+) (==|<=|>=|<|>|in|contains|startsWith) (.+)$`)

// mapped is a request in terms of the other version, as the page shows it.
func (p *lensPageReader) mapped(m transform.Mapping, request string) string {
	shown, err := p.ask(m, request)
	var refused *transform.MappingError
	switch {
	case errors.As(err, &refused):
		return "refused: " + strings.ReplaceAll(refused.Reason, "|", `\|`)
	case err != nil:
		return "refused: " + err.Error()
	}
	return "`" + shown + "`"
}

func (p *lensPageReader) ask(m transform.Mapping, request string) (string, error) {
	verb, rest, _ := strings.Cut(request, " ")
	switch verb {
	case "mask":
		fields, err := m.Field(rest)
		return "mask " + strings.Join(fields, ", "), err
	case "order":
		field, err := m.Order(strings.TrimPrefix(rest, "by "))
		return "order by " + field, err
	case "name":
		name, err := m.Name(rest)
		return "name " + name, err
	case "parent":
		parent, err := m.Parent(rest)
		return "parent " + parent, err
	}
	var cs []transform.Condition
	for _, part := range strings.Split(request, " && ") {
		if path, ok := strings.CutPrefix(part, "has "); ok {
			cs = append(cs, transform.Condition{Path: path, Op: transform.OpHas})
			continue
		}
		f := comparison.FindStringSubmatch(part)
		if f == nil {
			p.t.Fatalf("%s is no request", part)
		}
		c := transform.Condition{Path: f[1], Op: transform.Operator(f[2])}
		if text, ok := strings.CutPrefix(f[3], "timestamp("); ok {
			at, err := time.Parse(time.RFC3339, strings.Trim(text, `")`))
			if err != nil {
				p.t.Fatal(err)
			}
			c.Values = []any{at}
		} else {
			c.Values = literals(p.t, f[3])
		}
		cs = append(cs, c)
	}
	mapped, err := transform.CompareAll(m, cs)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, c := range mapped {
		parts = append(parts, conditionText(c))
	}
	return strings.Join(parts, " && "), nil
}

func literals(t *testing.T, text string) []any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for i, v := range list {
		if n, ok := v.(json.Number); ok {
			if whole, err := n.Int64(); err == nil {
				list[i] = whole
			} else if list[i], err = n.Float64(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return list
}

func conditionText(c transform.Condition) string {
	var values []string
	for _, v := range c.Values {
		if at, ok := v.(time.Time); ok {
			values = append(values, fmt.Sprintf("timestamp(%q)", at.UTC().Format(time.RFC3339)))
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		values = append(values, string(text))
	}
	switch c.Op {
	case transform.OpHas:
		return "has " + c.Path
	case transform.OpIn:
		return c.Path + " in [" + strings.Join(values, ", ") + "]"
	default:
		return c.Path + " " + string(c.Op) + " " + strings.Join(values, ", ")
	}
}
