-- What version 3 adds.

-- Dead letters that a limit in number or bytes has ever removed before their age was over.
ALTER TABLE queues ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0;
