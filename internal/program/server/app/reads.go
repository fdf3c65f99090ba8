package app

import (
	"regexp"

	"go.uber.org/zap"

	"dbcontroller.dev/apiversion"
)

// readName matches the usual names of methods that only read.
var readName = regexp.MustCompile(`^(Get|BatchGet|List|Watch|Search)([A-Z]|$)`)

// unmarkedReads returns methods that look like reads and are not declared as such. They count as
// writes: a switch holds them, and an inactive version refuses them.
func (svc Service) unmarkedReads() []string {
	var names []string
	for _, s := range svc.APIs {
		for i := range s.Methods().Len() {
			if m := s.Methods().Get(i); readName.MatchString(string(m.Name())) && !apiversion.IsRead(m) {
				names = append(names, string(m.FullName()))
			}
		}
	}
	return names
}

// warnOfReads logs methods that are probably undeclared reads.
func (svc Service) warnOfReads(log *zap.Logger) {
	if names := svc.unmarkedReads(); len(names) > 0 {
		log.Warn("methods that look like reads count as writes: a switch holds them; add 'option idempotency_level = NO_SIDE_EFFECTS;' to those that only read",
			zap.Strings("methods", names))
	}
}
