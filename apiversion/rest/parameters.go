package rest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// binding is one path of a method, with the fields that it sets.
type binding struct {
	method   string   // of HTTP; "*" means any
	segments []string // of the path; "*" and "**" stand for any
	verb     string   // behind the colon
	input    protoreflect.MessageDescriptor
	sets     [][]protoreflect.FieldDescriptor
}

// variable matches a field in a path template, such as {name} or {name=projects/*}.
var variable = regexp.MustCompile(`\{([^=}]+)(?:=([^}]*))?\}`)

// bindingsOf returns the paths of a method. The transcoder has checked their templates.
func bindingsOf(m protoreflect.MethodDescriptor) []binding {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return nil
	}
	var out []binding
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		b := binding{input: m.Input()}
		var template string
		switch p := r.GetPattern().(type) {
		case *annotations.HttpRule_Get:
			b.method, template = http.MethodGet, p.Get
		case *annotations.HttpRule_Put:
			b.method, template = http.MethodPut, p.Put
		case *annotations.HttpRule_Post:
			b.method, template = http.MethodPost, p.Post
		case *annotations.HttpRule_Delete:
			b.method, template = http.MethodDelete, p.Delete
		case *annotations.HttpRule_Patch:
			b.method, template = http.MethodPatch, p.Patch
		case *annotations.HttpRule_Custom:
			b.method, template = p.Custom.GetKind(), p.Custom.GetPath()
		}
		path := variable.ReplaceAllStringFunc(template, func(v string) string {
			parts := variable.FindStringSubmatch(v)
			if fields, err := fieldsAt(b.input, parts[1]); err == nil {
				b.sets = append(b.sets, fields)
			}
			return cmp.Or(parts[2], "*")
		})
		b.segments, b.verb = split(path)
		out = append(out, b)
	}
	return out
}

// split returns the segments of a path, and the verb behind the colon.
func split(path string) (segments []string, verb string) {
	segments = strings.Split(strings.TrimPrefix(path, "/"), "/")
	last := len(segments) - 1
	segments[last], verb, _ = strings.Cut(segments[last], ":")
	return segments, verb
}

// compareBindings orders bindings as the transcoder chooses between them: a literal segment comes
// before "*", and that before "**".
func compareBindings(a, b binding) int {
	rank := func(s string) int { return slices.Index([]string{"*", "**"}, s) } // -1 for a literal
	return slices.CompareFunc(a.segments, b.segments, func(x, y string) int { return cmp.Compare(rank(x), rank(y)) })
}

// matches reports whether a request has this path.
func (b binding) matches(method string, segments []string, verb string) bool {
	if verb != b.verb || b.method != "*" && b.method != method {
		return false
	}
	for i, s := range b.segments {
		switch {
		case s == "**":
			return true
		case i == len(segments) || s != "*" && s != segments[i]:
			return false
		}
	}
	return len(segments) == len(b.segments)
}

// checkParameters refuses query parameters that the transcoder would drop, or that would replace a
// part of the path. A dropped update_mask or expected_revision changes the meaning of a write. A
// gateway in front of the service may decide by the path who may call, so the path names the resource.
func (f *front) checkParameters(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	segments, verb := split(r.URL.EscapedPath())
	i := slices.IndexFunc(f.bindings, func(b binding) bool { return b.matches(r.Method, segments, verb) })
	if i < 0 {
		return nil // no REST request
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("the query of the address: %w: escape %%, ; and & in values", err)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		fields, err := fieldsAt(f.bindings[i].input, name)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
		if slices.ContainsFunc(f.bindings[i].sets, func(set []protoreflect.FieldDescriptor) bool { return slices.Equal(set, fields) }) {
			return fmt.Errorf("parameter %q: the path has this field already: leave the parameter out", name)
		}
		last := fields[len(fields)-1]
		switch {
		case last.IsMap(), last.IsList() && last.Message() != nil:
			return fmt.Errorf("parameter %q: a parameter cannot have a map, or a list of messages", name)
		// Without a list, all but one of the values would be lost.
		case !last.IsList() && len(query[name]) > 1:
			return fmt.Errorf("parameter %q: it is there %d times, and is no list", name, len(query[name]))
		}
	}
	return nil
}

// fieldsAt returns the fields along a path of names in a message, as in secret.name. Names in JSON
// are accepted too.
func fieldsAt(in protoreflect.MessageDescriptor, path string) ([]protoreflect.FieldDescriptor, error) {
	var out []protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		if n := len(out); n > 0 {
			if in = out[n-1].Message(); in == nil || out[n-1].IsList() || out[n-1].IsMap() {
				return nil, fmt.Errorf("%s has no fields", out[n-1].Name())
			}
		}
		if name == "" {
			return nil, errors.New("a name is empty")
		}
		fd := in.Fields().ByJSONName(name)
		if fd == nil {
			if fd = in.Fields().ByName(protoreflect.Name(name)); fd == nil {
				return nil, fmt.Errorf("there is no field %q", name)
			}
		}
		out = append(out, fd)
	}
	return out, nil
}
