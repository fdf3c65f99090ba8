package starter

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// own is the service's name in this module.
const own = "tasks"

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,39}$`)

// CheckName refuses invalid names of a service. The name becomes a Go package, a proto package and
// a part of the deployment's name.
func CheckName(name string) error {
	switch {
	case !nameForm.MatchString(name):
		return fmt.Errorf("%q cannot name a service: want lower-case letters and digits, a letter first, at most 40", name)
	case token.IsKeyword(name), name == "main", name == "dbcontroller", name == "google":
		return fmt.Errorf("%q cannot name a service: the word has a meaning in Go or in its imports", name)
	}
	return nil
}

// mentions matches the places where the service's files contain its name. Any other "tasks" is the
// resource that the service keeps.
var mentions = regexp.MustCompile(`\btasks\.v[12]\b|tasksv[12]|[fF]ile_tasks_v[12]|\btasks/v[12]\b|\btasks/\$version|gen/tasks/|;tasks\$version|` +
	`\btasks/(service|service_test|lens)\.|"tasks/lens|/tasks"|\btasks\.Service\b|\bpackage tasks\b|\bPackage tasks\b|Name: "tasks"|NewRegistry\("tasks"\)|` +
	`services/tasks\.|namespace: tasks/|/tmp/tasks-db|^# tasks\n`)

// named renames the service in the text or the path of a file.
func named(text, name string) string {
	return mentions.ReplaceAllStringFunc(text, func(found string) string { return strings.Replace(found, own, name, 1) })
}

// renamed renames the service in a Go file. A generated file holds the descriptor of its messages,
// where the length of a string precedes it. The descriptor is therefore decoded and encoded again.
func renamed(text, name string) (string, error) {
	raw, literal, err := descriptor(text)
	if err != nil || raw == "" {
		return named(text, name), err
	}
	var file descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal([]byte(raw), &file); err != nil {
		return "", fmt.Errorf("descriptor: %w", err)
	}
	// Deterministic: the same name must always give the same file.
	renameTexts(file.ProtoReflect(), name)
	made, err := proto.MarshalOptions{Deterministic: true}.Marshal(&file)
	if err != nil {
		return "", fmt.Errorf("descriptor: %w", err)
	}
	// Only the texts around the descriptor may be renamed as text.
	before, after, _ := strings.Cut(text, literal)
	return named(before, name) + strconv.Quote(string(made)) + named(after, name), nil
}

// descriptor returns the value and the source text of a file's descriptor constant. Both are empty
// if the file has none.
func descriptor(text string) (value, literal string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, 0)
	if err != nil {
		return "", "", err
	}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			// protoc-gen-go names the constant file_..._rawDesc.
			v, ok := s.(*ast.ValueSpec)
			if !ok || len(v.Names) != 1 || !strings.HasSuffix(v.Names[0].Name, "_rawDesc") {
				continue
			}
			value, err := joined(v.Values[0])
			return value, text[fset.Position(v.Values[0].Pos()).Offset:fset.Position(v.Values[0].End()).Offset], err
		}
	}
	return "", "", nil
}

// joined returns the value of concatenated string literals.
func joined(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(e.Value)
	case *ast.BinaryExpr:
		left, err := joined(e.X)
		if err != nil {
			return "", err
		}
		right, err := joined(e.Y)
		return left + right, err
	default:
		return "", fmt.Errorf("descriptor: %T is no text", e)
	}
}

// renameTexts renames the service in all strings of a message: packages, paths and type names.
func renameTexts(m protoreflect.Message, name string) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList():
			for i := range v.List().Len() {
				switch fd.Kind() {
				case protoreflect.MessageKind:
					renameTexts(v.List().Get(i).Message(), name)
				// Lists of strings hold dependencies, which are paths of other files.
				case protoreflect.StringKind:
					v.List().Set(i, protoreflect.ValueOfString(named(v.List().Get(i).String(), name)))
				default:
				}
			}
		case fd.Kind() == protoreflect.MessageKind:
			renameTexts(v.Message(), name)
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString(named(v.String(), name)))
		}
		return true
	})
}
