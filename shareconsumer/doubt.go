package shareconsumer

// doubts are the moments at which it came into doubt whether the group still knows
// the member, counted, and up to which of them its coordinator has said so since.
// ShareFetch serves whom the coordinator does not know, and what is acquired then
// can only be given back: each record would lose a delivery, and one on its last
// would be archived. So nothing is fetched in doubt, and the coordinator is asked at
// once.
type doubts struct {
	had, settled int
	denied       int // the last that is of every session: one that begins meanwhile has it, too
}

// doubt begins one; a session that has it fetches again when it is settled. c.mu is
// held.
func (c *Consumer) doubt() int {
	c.doubts.had++
	signal(c.beat)
	c.wakeSessions() // it may be another's turn
	return c.doubts.had
}

// doubted is for a member that a leader was told is none. c.mu is held.
func (c *Consumer) doubted() {
	c.doubts.denied = c.doubt()
	for _, s := range c.sessions {
		s.doubt = c.doubts.denied
	}
}

// confirmed takes in that the coordinator took the member for one after it had had
// so many doubts. c.mu is held.
func (c *Consumer) confirmed(had int) {
	if had > c.doubts.settled {
		c.doubts.settled = had
		c.wakeSessions()
	}
}

// sure tells whether nothing speaks against fetching; c.mu is held.
func (s *session) sure() bool { return s.doubt <= s.c.doubts.settled }
