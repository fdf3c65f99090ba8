package app

import (
	"regexp"

	"go.uber.org/zap"

	"dbcontroller.dev/apiversion"
)

// readName is how methods begin that usually only read.
var readName = regexp.MustCompile(`^(Get|BatchGet|List|Watch|Search)([A-Z]|$)`)

// unmarkedReads are methods whose names say that they read, and that do not declare it. They count
// as writes: a switch holds them, and the version that is not active refuses them.
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

// warnOfReads says which methods are probably reads without saying so.
func (svc Service) warnOfReads(log *zap.Logger) {
	if names := svc.unmarkedReads(); len(names) > 0 {
		log.Warn("methods that look like reads count as writes: a switch holds them; add 'option idempotency_level = NO_SIDE_EFFECTS;' to those that only read",
			zap.Strings("methods", names))
	}
}
