package lens

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/keymap"
)

// idForm reads the form of a kind's _ids.
func (p *lensParser) idForm(n ast.Node, key string) (*keymap.Form, error) {
	f := &keymap.Form{}
	if text, err := scalarText(n); err == nil {
		f.Written = text
		if err := f.Add(nil, text); err != nil {
			return nil, p.errorAt(n, "%s: %v", key, err)
		}
		return f, nil
	}
	entries, ok := mapping(n)
	if !ok || len(entries) == 0 {
		return nil, p.errorAt(n, "%s must be a pattern such as projects/{project}, or the fields of a document with a pattern for each", key)
	}
	// The lens gives one pattern for each field.
	f.Document = true
	var written []string
	for _, e := range entries {
		name, err := scalarText(e.Key)
		switch {
		case err != nil || name == "" || strings.HasPrefix(name, "$") || strings.ContainsRune(name, 0):
			return nil, p.errorAt(e.Key, "%s: %s cannot be the name of a field of an _id", key, strings.TrimSpace(e.Key.String()))
		}
		// Only strings can contain variables. All other values are constants.
		if s, ok := e.Value.(*ast.StringNode); ok {
			if err := f.Add([]byte(name), s.Value); err != nil {
				return nil, p.errorAt(e.Value, "%s: %s: %v", key, name, err)
			}
			written = append(written, fmt.Sprintf("%s: %q", name, s.Value))
		} else {
			var v bson.RawValue
			if v, err = p.value(e.Value, key+": "+name); err == nil {
				f.AddConstant([]byte(name), v)
				written = append(written, fmt.Sprintf("%s: %s", name, v))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	f.Written = "{" + strings.Join(written, ", ") + "}"
	return f, nil
}
