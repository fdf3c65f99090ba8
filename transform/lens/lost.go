package lens

// Loss is a field that only one side has. It survives a round trip as the complement,
// as long as the record that holds it does.
type Loss struct {
	Kind      string // of a fanOut's or gather's records; empty for the lens's own
	Field     string // as that side names it; "*" is any item of a list or entry of a map
	Operation string // which loses it, as the lens has it
}

// Lost lists the fields of the old version that do not survive the way up, and those of
// the new version that do not survive the way down.
func (l *Lens) Lost() (up, down []Loss) {
	up, down = l.down.losses("", ""), l.up.losses("", "")
	for _, f := range l.fans {
		field := f.field.String() + "."
		if f.as != asObject {
			field += "*."
		}
		asField, asRecord := f.collect.losses("", field), f.scatter.losses(f.kind, "")
		if f.gather {
			asField, asRecord = asRecord, asField
		}
		up, down = append(up, asField...), append(down, asRecord...)
	}
	return up, down
}

// losses are what the far side of a program has alone.
func (p *program) losses(kind, prefix string) []Loss {
	var out []Loss
	for _, h := range p.held {
		out = append(out, Loss{kind, prefix + h.path.String(), h.by.String()})
	}
	return out
}
