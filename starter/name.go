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

// own is the name that the service has in this module.
const own = "tasks"

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,39}$`)

// CheckName refuses a name that a service cannot have. The name becomes a Go package, a proto
// package and a part of the deployment's name.
func CheckName(name string) error {
	switch {
	case !nameForm.MatchString(name):
		return fmt.Errorf("%q cannot name a service: want lower-case letters and digits, a letter first, at most 40", name)
	case token.IsKeyword(name), name == "main", name == "dbcontroller", name == "google":
		return fmt.Errorf("%q cannot name a service: the word has a meaning in Go or in its imports", name)
	}
	return nil
}

// mentions are where the files of the service say its name. The other words "tasks" are the
// resource that it keeps.
var mentions = regexp.MustCompile(`\btasks\.v[12]\b|tasksv[12]|[fF]ile_tasks_v[12]|\btasks/v[12]\b|\btasks/\$version|gen/tasks/|;tasks\$version|` +
	`\btasks/(service|service_test|lens)\.|"tasks/lens|/tasks"|\btasks\.Service\b|\bpackage tasks\b|\bPackage tasks\b|Name: "tasks"|NewRegistry\("tasks"\)|` +
	`services/tasks\.|namespace: tasks/|/tmp/tasks-db|^# tasks\n`)

// named is a file of the service, or the name of one, under the name of another service.
func named(text, name string) string {
	return mentions.ReplaceAllStringFunc(text, func(found string) string { return strings.Replace(found, own, name, 1) })
}

// renamed is a Go file of the service under another name. Generated files hold the descriptor of
// their messages, in which every text follows its length.
func renamed(text, name string) (string, error) {
	raw, literal, err := descriptor(text)
	if err != nil || raw == "" {
		return named(text, name), err
	}
	var file descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal([]byte(raw), &file); err != nil {
		return "", fmt.Errorf("descriptor: %w", err)
	}
	renameTexts(file.ProtoReflect(), name)
	made, err := proto.MarshalOptions{Deterministic: true}.Marshal(&file)
	if err != nil {
		return "", fmt.Errorf("descriptor: %w", err)
	}
	before, after, _ := strings.Cut(text, literal)
	return named(before, name) + strconv.Quote(string(made)) + named(after, name), nil
}

// descriptor returns the value and the source of the constant that holds a file's descriptor;
// nothing where there is none.
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

// joined is the value of string literals that are added up.
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

// renameTexts renames the service in all texts of a message: packages, paths and names of types.
func renameTexts(m protoreflect.Message, name string) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList():
			for i := range v.List().Len() {
				switch fd.Kind() {
				case protoreflect.MessageKind:
					renameTexts(v.List().Get(i).Message(), name)
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
